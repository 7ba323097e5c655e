"""Colours and type of every chart: one specification for light and for dark surroundings.

Every colour is a Vega expression of the parameter `dark`, so that a page switches its charts by
one signal and a static picture keeps the default, light. The eight series colours were chosen by
their distances under protanopia, deuteranopia and tritanopia; from the ninth series on they return
paler, and lines carry a shape of their own besides.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

LIGHT = {
    "page": "#f7f7f5", "surface": "#ffffff", "text": "#1d2129", "muted": "#5f6773",
    "line": "#e3e4e1", "band": "#eef1f6", "accent": "#1f5fd0", "negative": "#b9531b",
    "zero": "#f1f1ee", "notable": "#f2c230",
}  # fmt: skip
DARK = {
    "page": "#14161a", "surface": "#1c1f25", "text": "#e8eaed", "muted": "#a0a8b4",
    "line": "#30353d", "band": "#262c36", "accent": "#6ea3f5", "negative": "#e58a4f",
    "zero": "#2a2e35", "notable": "#8a6f1f",
}  # fmt: skip
SERIES = (
    ("#1f5fd0", "#5b93f5"), ("#e07b10", "#ee8f35"), ("#15937a", "#35a88a"), ("#c566d9", "#e0a0f5"),
    ("#8c1c34", "#d4475f"), ("#cdb620", "#f2e388"), ("#4fb3e6", "#a4e0ff"), ("#7a828d", "#868f9c"),
    ("#9db9ec", "#2f4a7a"), ("#f0c796", "#77491d"), ("#93cfc2", "#1d5546"), ("#e3bdec", "#70507a"),
    ("#c98f9b", "#6a2430"), ("#e8dc97", "#7a7245"), ("#b2dcf3", "#52707f"), ("#c3c7cc", "#4a4f57"),
)  # fmt: skip
PREFERRED = {
    "heterogeneous": 0, "impresslearn": 0, "homogeneous": 1, "random": 2, "gn": 3, "x": 4,
    "supsup": 7,
}  # fmt: skip
"""Colours that the paper's methods have in every record, so that a colour means one thing."""
SHAPES = (
    "circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-right",
    "triangle-left",
)  # fmt: skip
FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


def themed(light: str, dark: str) -> alt.ExprRef:
    """A colour for light and one for dark surroundings."""
    return alt.ExprRef(f"dark ? '{dark}' : '{light}'")


def colour(name: str) -> alt.ExprRef:
    """The colour of that name in both palettes."""
    return themed(LIGHT[name], DARK[name])


def slots_of(names: Sequence[str]) -> Mapping[str, int]:
    """A slot for each name: the preferred one where it is free, else the next free one."""
    slots: dict[str, int] = {}
    for name in names:
        slot = PREFERRED.get(name.lower())
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


_TEXT, _MUTED = colour("text"), colour("muted")
CONFIG = {
    "background": colour("surface"),
    "font": FONT,
    "padding": 12,
    "view": {"stroke": None},
    "mark": {"aria": False},  # the description says it once, not every point
    "title": {
        "anchor": "start", "fontSize": 15, "color": _TEXT, "subtitleColor": _MUTED, "limit": 880,
        "subtitleFontSize": 11, "subtitlePadding": 5, "offset": 14,
    },
    "axis": {
        "labelColor": _MUTED, "titleColor": _TEXT, "gridColor": colour("line"), "domain": False,
        "ticks": False, "labelPadding": 6, "labelFontSize": 11, "titleFontSize": 12,
        "titlePadding": 10, "titleFontWeight": 500, "labelLimit": 160,
    },
    "axisX": {"grid": False},
    "axisBand": {"grid": False},
    "legend": {
        "labelColor": _TEXT, "titleColor": _TEXT, "labelLimit": 260, "labelFontSize": 11,
        "symbolSize": 90, "symbolStrokeWidth": 2, "rowPadding": 5, "titleFontWeight": 500,
    },
    "header": {"labelColor": _TEXT, "labelFontSize": 11, "labelLimit": 160},
}  # fmt: skip
