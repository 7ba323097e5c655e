"""The colours of figures and page, once for light and once for dark surroundings.

`page` hands them to CSS as variables of the same names, so that a chart and the text around it
never disagree. The three methods differ in lightness as well as in hue, and the heat map runs from
orange to blue: both survive the common colour-vision deficiencies.
"""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Palette:
    """Colours as CSS hexadecimal strings."""

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

    def css(self) -> str:
        """The declarations `--page: …; --surface: …; …`."""
        return " ".join(f"--{name}: {colour};" for name, colour in asdict(self).items())


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
)
