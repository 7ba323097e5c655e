"""Colours worked out from a palette, the same for interactive and static figures."""

from impresslearn.report.charts.shapes import HeatChart
from impresslearn.report.palette import Palette

NOTABLE = (0.05, 0.01, 0.001)
"""Bounds of p-values; from one to the next a cell is coloured more strongly."""
NOTABLE_NAMES = ("≥ 0.05", "< 0.05", "< 0.01", "< 0.001")
MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
"""plotly's names, one a slot."""


def blended(colour: str, ground: str, share: float) -> str:
    """`share` of a colour upon a ground, as hexadecimal."""
    parts = zip(_channels(colour), _channels(ground), strict=True)
    return "#" + "".join(
        f"{round(share * over + (1 - share) * under):02x}" for over, under in parts
    )


def translucent(colour: str, alpha: float) -> str:
    """The colour as CSS rgba."""
    red, green, blue = _channels(colour)
    return f"rgba({red},{green},{blue},{alpha:g})"


def readable_on(ground: str) -> str:
    """Black or white, whichever can be read on the ground."""
    linear = [(channel / 255) ** 2.2 for channel in _channels(ground)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#14161a" if luminance > 0.18 else "#ffffff"


def is_hollow(slot: int, palette: Palette) -> bool:
    """Whether a series repeats a colour and is told from it by an empty fill."""
    return slot >= len(palette.series)


def notability(p_value: float) -> int:
    """0 for a p-value of 0.05 and more, up to 3 for one below 0.001."""
    return sum(p_value < bound for bound in NOTABLE)


def heat_stops(chart: HeatChart, palette: Palette) -> list[str]:
    """Colours at equal distances from the lowest value to the highest."""
    if chart.scale == "probability":
        steps = (blended(palette.notable, palette.surface, share) for share in (0.35, 0.68, 1.0))
        return [palette.band, *steps]
    if chart.scale == "diverging":
        return [palette.negative, palette.zero, palette.positive]
    return [blended(palette.series[0], palette.surface, share) for share in (0.06, 0.5, 1.0)]


def heat_colour(chart: HeatChart, palette: Palette, value: float) -> str:
    """The colour of a cell."""
    stops = heat_stops(chart, palette)
    if chart.scale == "probability":
        return stops[notability(value)]
    place = (value - chart.low) / (chart.high - chart.low) * (len(stops) - 1)
    lower = min(int(place), len(stops) - 2)
    return blended(stops[lower + 1], stops[lower], place - lower)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
