"""Colours and type of every chart: one specification for light and for dark surroundings.

They are in theme.json. Every colour becomes a Vega expression of the parameter `dark`, so that a
page switches its charts by one signal and a static picture keeps the default, light. The eight
series colours were chosen by their distances under protanopia, deuteranopia and tritanopia; from
the ninth series on they return paler, and lines carry a shape of their own besides. The methods of
the paper have preferred places among them, so that a colour means one thing in every record.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import altair as alt

THEME = json.loads((files(__package__) / "theme.json").read_text(encoding="utf-8"))
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""The version that Altair writes its specifications for."""
SERIES, SHAPES = THEME["series"], THEME["shapes"]


def themed(light: str, dark: str) -> alt.ExprRef:
    """A colour for light and one for dark surroundings."""
    return alt.ExprRef(f"dark ? '{dark}' : '{light}'")


def colour(name: str) -> alt.ExprRef:
    """The colour of that name in both palettes."""
    return themed(THEME["light"][name], THEME["dark"][name])


def slots_of(names: Sequence[str]) -> Mapping[str, int]:
    """A slot for each name: the preferred one where it is free, else the next free one."""
    slots: dict[str, int] = {}
    for name in names:
        slot = THEME["preferred"].get(name.lower())
        if slot is not None and slot not in slots.values():
            slots[name] = slot
    free = (slot for slot in range(len(names) + len(SHAPES)) if slot not in slots.values())
    return {name: slots[name] if name in slots else next(free) for name in names}


def series(
    names: Sequence[str], present: Sequence[str], lines: bool
) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape of the groups present, with a legend; `names` are those of all figures."""
    slots = slots_of(list(dict.fromkeys((*names, *present))))
    chosen = [slots[name] for name in present]
    shapes = [SHAPES[(slot + slot // len(SHAPES)) % len(SHAPES)] for slot in chosen]
    colours = [themed(*SERIES[slot % len(SERIES)]) for slot in chosen]
    legend = alt.Legend(title=None, symbolOpacity=1) if any(present) else None
    return (
        alt.Color("group:N", scale=alt.Scale(domain=present, range=colours), legend=legend),
        alt.Shape(
            "group:N", scale=alt.Scale(domain=present, range=shapes),
            legend=legend if lines else None,
        ),
    )  # fmt: skip


def titled(chart: Any, title: str, notes: Sequence[str], description: str) -> Any:
    """The chart with its title, notes on what its marks mean, and a description in a sentence."""
    told = [note for note in notes if note]
    if len(joined := " · ".join(told)) <= 120:
        told = [joined]
    chart.title = {"text": title, "subtitle": told}
    chart.description = description
    return chart


def themed_chart(chart: Any) -> Any:
    """The whole chart in the colours of the theme, light unless its parameter `dark` is set."""
    chart = chart.add_params(alt.param(name="dark", value=False))
    chart.config = CONFIG  # in place: every copy that Altair makes of a layered chart takes long
    return chart


def _with_colours(part: Any) -> Any:
    """A part of the configuration, its "$name" replaced by the colour of that name."""
    if isinstance(part, dict):
        return {key: _with_colours(each) for key, each in part.items()}
    return colour(part[1:]) if isinstance(part, str) and part.startswith("$") else part


CONFIG = _with_colours(THEME["config"])
