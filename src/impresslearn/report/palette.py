"""The colours of figures and page, once for light and once for dark surroundings.

The pages hand them to CSS as variables of the same names, so that a chart and the text around it
never disagree. The demo's three methods differ in lightness as well as in hue, and the heat maps
run from orange to blue or through one hue: all survive the common colour-vision deficiencies. The
eight series colours were chosen by their distances under protanopia, deuteranopia and tritanopia;
lines carry a marker of their own besides, and from the ninth series on fills are hollow.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Palette:
    """Colours as CSS hexadecimal strings; series: one for each group of a chart."""

    page: str
    surface: str
    text: str
    muted: str
    line: str
    band: str
    learned: str
    supsup: str
    single: str
    negative: str
    zero: str
    positive: str
    notable: str
    series: tuple[str, ...]

    def css(self) -> str:
        """The declarations `--page: …; --surface: …; …`."""
        named = {name: colour for name, colour in asdict(self).items() if name != "series"}
        return " ".join(f"--{name}: {colour};" for name, colour in named.items())

    def of_series(self, slot: int) -> str:
        """The colour of a slot; they repeat after the last."""
        return self.series[slot % len(self.series)]


LIGHT = Palette(
    page="#f7f7f5",
    surface="#ffffff",
    text="#1d2129",
    muted="#5f6773",
    line="#e3e4e1",
    band="#f3f4f1",
    learned="#2160c4",
    supsup="#9aa7b8",
    single="#e3a35f",
    negative="#b9531b",
    zero="#f7f7f5",
    positive="#2160c4",
    notable="#f2c230",
    series=(
        "#1f5fd0",
        "#e07b10",
        "#15937a",
        "#c566d9",
        "#8c1c34",
        "#cdb620",
        "#4fb3e6",
        "#7a828d",
    ),
)
DARK = Palette(
    page="#14161a",
    surface="#1c1f25",
    text="#e8eaed",
    muted="#a0a8b4",
    line="#30353d",
    band="#22262d",
    learned="#6ea3f5",
    supsup="#76808f",
    single="#d08f4b",
    negative="#e58a4f",
    zero="#262a31",
    positive="#6ea3f5",
    notable="#e0b32c",
    series=(
        "#5b93f5",
        "#ee8f35",
        "#35a88a",
        "#e0a0f5",
        "#d4475f",
        "#f2e388",
        "#a4e0ff",
        "#868f9c",
    ),
)
PREFERRED = {
    "heterogeneous": 0,
    "impresslearn": 0,
    "homogeneous": 1,
    "random": 2,
    "gn": 3,
    "x": 4,
    "supsup": 7,
}
"""Slots that the paper's methods have in every record, so that a colour means one thing."""


def slots_of(names: Iterable[str]) -> Mapping[str, int]:
    """A slot for each name: the preferred one where it is free, else the next free one."""
    distinct = list(dict.fromkeys(names))
    slots: dict[str, int] = {}
    for name in distinct:
        slot = PREFERRED.get(name.lower())
        if slot is not None and slot not in slots.values():
            slots[name] = slot
    count = len(LIGHT.series)
    free = iter(
        slot for slot in range(len(distinct) + 2 * count) if slot not in set(slots.values())
    )
    return {name: slots[name] if name in slots else next(free) for name in distinct}
