"""From what a record asks for to charts made of plain numbers; see `shapes` for what comes out."""

from impresslearn.report.charts.boxes import box_chart
from impresslearn.report.charts.heatmaps import heat_chart
from impresslearn.report.charts.means import bar_chart, line_chart
from impresslearn.report.charts.shapes import Chart
from impresslearn.report.checks import naming
from impresslearn.report.results import Record
from impresslearn.report.specification import BarFigure, BoxFigure, Figure, LineFigure

__all__ = ["Chart", "chart_of", "charts_of"]


def charts_of(record: Record) -> list[Chart]:
    """The record's figures, in its order. Raises InputError for one without rows to draw."""
    charts = []
    for position, figure in enumerate(record.figures):
        with naming(f"{record.target}: figures[{position}]"):
            charts.append(chart_of(figure, record))
    return charts


def chart_of(figure: Figure, record: Record) -> Chart:
    """One figure of the record's rows."""
    if isinstance(figure, BoxFigure):
        return box_chart(figure, record.rows)
    if isinstance(figure, LineFigure):
        return line_chart(figure, record.rows)
    if isinstance(figure, BarFigure):
        return bar_chart(figure, record.rows)
    return heat_chart(figure, record.rows)
