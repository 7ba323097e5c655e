"""The empty plotly figure that every interactive chart starts from, and the names on its axes.

Transparent and without a frame, so that the page behind gives the background. Names are escaped,
because plotly reads a subset of HTML in its texts.
"""

from collections.abc import Sequence
from html import escape as escape_html
from math import ceil
from typing import Any

import plotly.graph_objects as go

from impresslearn.report.palette import Palette
from impresslearn.report.wording import shortened

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
CLEAR = "rgba(0,0,0,0)"
LABEL_LIMIT = 40
"""Labels that one axis can carry legibly; beyond it every k-th is shown."""


def escape(name: str) -> str:
    """The name with the characters that plotly would read as markup or, between $, as formulas.

    Quotes stay as they are: it decodes none.
    """
    return escape_html(name, quote=False).replace("$", "&#36;")


def empty_figure(palette: Palette, height: int, slanted: bool = True) -> go.Figure:
    """A figure without traces, the legend above the plot.

    slanted: the names on the x-axis are long or many. `layout.meta.narrow` holds what a narrow
    page changes, as paths into the layout.
    """
    figure = go.Figure(layout={"template": "none", "height": height})
    figure.update_layout(
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        font={"family": FONT, "size": 12, "color": palette.text},
        margin={"l": 8, "r": 8, "t": 40, "b": 8},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        modebar={"bgcolor": CLEAR, "color": palette.muted, "activecolor": palette.text},
        hovermode="closest",
        hoverlabel={
            "bgcolor": palette.surface,
            "bordercolor": palette.line,
            "align": "left",
            "font": {"family": FONT, "size": 12, "color": palette.text},
        },
    )
    axis = {
        "automargin": True,
        "fixedrange": True,
        "showline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": CLEAR,
        "gridcolor": palette.line,
        "zerolinecolor": palette.line,
        "tickfont": {"color": palette.muted},
    }
    figure.update_xaxes(**axis, showgrid=False, zeroline=False, tickangle=-45 if slanted else 0)
    figure.update_yaxes(**axis)
    narrow: dict[str, Any] = {"xaxis.tickfont.size": 9, "legend.font.size": 10}
    if slanted:
        narrow["xaxis.tickangle"] = -90
    figure.update_layout(meta={"narrow": narrow})
    return figure


def name_positions(
    update_axis: Any,
    names: Sequence[str],
    positions: Sequence[float] | None = None,
    **options: Any,
) -> None:
    """Name positions of a numeric axis, every k-th where there are too many to read."""
    where = range(len(names)) if positions is None else positions
    step = max(1, ceil(len(names) / LABEL_LIMIT))
    update_axis(
        tickmode="array",
        tickvals=list(where)[::step],
        ticktext=[escape(shortened(name)) for name in names[::step]],
        **options,
    )
