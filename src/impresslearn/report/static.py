"""Charts as files, SVG, PNG or PDF, drawn by matplotlib: no browser is needed.

For documents and papers: white ground, letters as outlines, and the same bytes from the same record
(no date, no random ids), so that a committed figure changes only when its numbers do. matplotlib
belongs to the extra `plots`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from impresslearn.errors import InputError, MissingDependencyError
from impresslearn.report.charts.shapes import (
    BarChart,
    BoxChart,
    Chart,
    HeatChart,
    LineChart,
    Mark,
    Reference,
)
from impresslearn.report.colouring import (
    NOTABLE_NAMES,
    blended,
    heat_colour,
    heat_stops,
    is_hollow,
    readable_on,
)
from impresslearn.report.interactive import CELLS, MANY
from impresslearn.report.palette import LIGHT, Palette
from impresslearn.report.wording import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("svg", "png", "pdf")
WIDTH, HEIGHT = 7.2, 3.7
"""Inches."""
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
LEGEND_COLUMNS = 4
LEGEND_WIDTH = 96
"""Characters that fit beside one another, the space of a handle counting as six."""


def write_figure(chart: Chart, path: Path, palette: Palette = LIGHT) -> None:
    """Write the chart in the format of the file's suffix.

    Raises InputError for another suffix or a place that cannot be written, MissingDependencyError
    without matplotlib.
    """
    path = Path(path)
    if path.suffix[1:] not in FORMATS:
        raise InputError(f"{path} must end in .{', .'.join(FORMATS)}")
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise MissingDependencyError(
            "static figures need matplotlib; install it with pip install 'impresslearn[plots]'"
        ) from None
    with rc_context(_settings(palette)):
        figure = Figure(figsize=_size(chart), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        axes = figure.add_subplot()
        _draw(chart, axes, palette)
        # only SVG and PDF carry a date
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(path.suffix[1:])
        try:
            figure.savefig(path, dpi=200, metadata=metadata)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from None


def _settings(palette: Palette) -> Any:  # matplotlib types its keys one by one
    return {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so it is everywhere
        "font.size": 9,
        "text.color": palette.text,
        "text.parse_math": False,  # a $ in a name is a $
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelcolor": palette.text,
        "axes.edgecolor": palette.line,
        "axes.facecolor": palette.surface,
        "axes.axisbelow": True,
        "figure.facecolor": palette.surface,
        "grid.color": palette.line,
        "grid.linewidth": 0.8,
        "xtick.color": palette.muted,
        "ytick.color": palette.muted,
        "hatch.linewidth": 0.8,
        "svg.fonttype": "path",
        "svg.hashsalt": "impresslearn",
    }


def _size(chart: Chart) -> tuple[float, float]:
    if isinstance(chart, HeatChart):
        return WIDTH, 1.3 + 0.42 * min(len(chart.y.labels), 30)
    return WIDTH, HEIGHT


def _draw(chart: Chart, axes: "Axes", palette: Palette) -> None:
    if chart.title:
        axes.set_title(chart.title, pad=10, wrap=True)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0, pad=5)
    _axis(axes.set_xticks, axes.set_xlabel, chart.x)
    _axis(axes.set_yticks, axes.set_ylabel, chart.y)
    if isinstance(chart, HeatChart):
        _heat(chart, axes, palette)
    else:
        axes.grid(axis="y")
        if isinstance(chart, BoxChart):
            _boxes(chart, axes, palette)
        elif isinstance(chart, BarChart):
            _bars(chart, axes, palette)
        else:
            _lines(chart, axes, palette)
        for reference in chart.references:
            _reference(chart, reference, axes, palette)
        _legend(axes)
    if chart.x.log:
        axes.set_xscale("log")
        axes.minorticks_off()
        _axis(axes.set_xticks, axes.set_xlabel, chart.x)
    if chart.x.slanted:
        axes.tick_params(axis="x", labelrotation=45)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")
    if not isinstance(chart, HeatChart):
        axes.set_xlim(chart.x.low, chart.x.high)
        axes.set_ylim(chart.y.low, chart.y.high)


def _axis(set_ticks: Callable[..., Any], set_label: Callable[..., Any], axis: Any) -> None:
    set_ticks(axis.ticks, [shortened(label) for label in axis.labels])
    set_label(axis.title)


def _boxes(chart: BoxChart, axes: "Axes", palette: Palette) -> None:
    for series in chart.series:
        colour = palette.of_series(series.slot)
        hollow = is_hollow(series.slot, palette)
        line = {"color": colour, "linewidth": 1.1}
        axes.bxp(
            [
                {
                    "whislo": box.lower,
                    "q1": box.quartiles[0],
                    "med": box.quartiles[1],
                    "q3": box.quartiles[2],
                    "whishi": box.upper,
                    "mean": box.mean,
                    "fliers": list(box.values or box.outliers),
                }
                for box in series.boxes
            ],
            positions=[box.x for box in series.boxes],
            widths=chart.width,
            capwidths=0.4 * chart.width,
            manage_ticks=False,
            patch_artist=True,
            showmeans=True,
            boxprops={
                "edgecolor": colour,
                "linewidth": 1.1,
                "facecolor": "none" if hollow else blended(colour, palette.surface, 0.3),
            },
            medianprops={**line, "linewidth": 1.8},
            whiskerprops=line,
            capprops=line,
            flierprops={
                "marker": "o",
                "markersize": 2.2,
                "markerfacecolor": colour,
                "markeredgecolor": "none",
            },
            meanprops={
                "marker": "D",
                "markersize": 3,
                "markerfacecolor": palette.surface,
                "markeredgecolor": colour,
            },
            label=_label(series.name),
        )


def _bars(chart: BarChart, axes: "Axes", palette: Palette) -> None:
    for series in chart.series:
        colour = palette.of_series(series.slot)
        hollow = is_hollow(series.slot, palette)
        axes.bar(
            [mark.x for mark in series.marks],
            [mark.mean for mark in series.marks],
            width=chart.width,
            color="none" if hollow else colour,
            edgecolor=colour,
            yerr=_errors(series.marks),
            error_kw={"ecolor": palette.text, "elinewidth": 0.9, "capsize": 2},
            label=_label(series.name),
        )


def _lines(chart: LineChart, axes: "Axes", palette: Palette) -> None:
    if chart.frontier:
        axes.plot(
            [x for x, _ in chart.frontier],
            [y for _, y in chart.frontier],
            color=blended(palette.notable, palette.surface, 0.5),
            linewidth=6,
            drawstyle="steps-post",
            solid_joinstyle="miter",
            label="frontier",
        )
    many = sum(len(series.marks) for series in chart.series) > MANY
    for series in chart.series:
        colour = palette.of_series(series.slot)
        hollow = is_hollow(series.slot, palette)
        axes.errorbar(
            [mark.x for mark in series.marks],
            [mark.mean for mark in series.marks],
            yerr=None if many else _errors(series.marks),
            color=colour,
            linestyle="--" if hollow else "-",
            linewidth=1.4,
            marker=MARKERS[series.slot % len(MARKERS)],
            markersize=2 if many else 5,
            markerfacecolor=palette.surface if hollow else colour,
            elinewidth=0.9,
            capsize=2,
            label=_label(series.name),
        )


def _errors(marks: Sequence[Mark]) -> list[float] | None:
    halves = [0.0 if mark.high is None else mark.high - mark.mean for mark in marks]
    return halves if any(halves) else None


def _reference(
    chart: BoxChart | BarChart | LineChart, reference: Reference, axes: "Axes", palette: Palette
) -> None:
    colour = palette.of_series(reference.slot)
    axes.axhspan(
        reference.mean - reference.deviation,
        reference.mean + reference.deviation,
        color=blended(colour, palette.surface, 0.2),
        linewidth=0,
        zorder=0.4,
    )
    axes.axhline(
        reference.mean,
        color=colour,
        linewidth=1.2,
        linestyle="--",
        zorder=0.5,
        label=f"{_label(reference.name)} (mean ± deviation)",
    )


def _heat(chart: HeatChart, axes: "Axes", palette: Palette) -> None:
    from matplotlib.patches import Patch, Rectangle

    for row, values in enumerate(chart.values):
        for column, value in enumerate(values):
            if value is None:
                continue
            colour = heat_colour(chart, palette, value)
            axes.add_patch(
                Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="white")
            )
            if len(chart.x.labels) <= CELLS:
                axes.text(
                    column,
                    row,
                    chart.texts[row][column],
                    color=readable_on(colour),
                    ha="center",
                    va="center",
                )
    axes.set_xlim(-0.5, len(chart.x.labels) - 0.5)
    axes.set_ylim(-0.5, len(chart.y.labels) - 0.5)
    stops = heat_stops(chart, palette)
    if chart.scale == "probability":
        axes.legend(
            handles=[Patch(color=c, label=n) for c, n in zip(stops, NOTABLE_NAMES, strict=True)],
            title=chart.value_title,
            loc="center left",
            bbox_to_anchor=(1.01, 0.5),
            frameon=False,
        )
    else:
        _colour_bar(chart, axes, stops)


def _colour_bar(chart: HeatChart, axes: "Axes", stops: list[str]) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    from impresslearn.report.ticks import linear_ticks

    shades = ScalarMappable(
        Normalize(chart.low, chart.high), LinearSegmentedColormap.from_list("shades", stops)
    )
    ticks, step = linear_ticks(chart.low, chart.high, 5)
    bar = axes.figure.colorbar(shades, ax=axes, aspect=25, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label(chart.value_title)
    bar.set_ticks(ticks, labels=[chart.quantity.tick(tick, step) for tick in ticks])
    bar.ax.tick_params(length=0)


def _legend(axes: "Axes") -> None:
    handles, names = axes.get_legend_handles_labels()
    if handles:
        fitting = LEGEND_WIDTH // (max(map(len, names)) + 6)
        axes.figure.legend(
            handles,
            names,
            loc="outside lower center",
            ncols=max(1, min(LEGEND_COLUMNS, len(handles), fitting)),
            frameon=False,
            handlelength=1.6,
            columnspacing=1.6,
        )


def _label(name: str) -> str | None:
    return shortened(name, 40) if name else None
