"""What a record asks for, as Altair charts: pages, notebooks and pictures draw the same ones."""

from typing import Any

from impresslearn.report.charts.comparison import comparison_chart
from impresslearn.report.charts.grouped import bar_chart, box_chart, line_chart
from impresslearn.report.charts.heatmaps import heatmap_chart
from impresslearn.report.charts.theme import VEGA_LITE, themed_chart
from impresslearn.report.checking import naming
from impresslearn.report.records import Record

__all__ = ["VEGA_LITE", "charts_of", "comparison_chart"]
_DRAW = {"box": box_chart, "bar": bar_chart, "line": line_chart, "heatmap": heatmap_chart}


def charts_of(record: Record) -> list[Any]:
    """The record's figures, in its order. Raises InputError for one without rows to draw."""
    charts = []
    for position, figure in enumerate(record.figures):
        with naming(f"{record.target}: figures[{position}]"):
            charts.append(themed_chart(_DRAW[figure.kind](figure, record.rows)))
    return charts
