"""One HTML file for all records of a directory: it opens from the file system and loads nothing.

A table of contents, then a section a target: the paper's claim and what was found, the data, the
charts, the tables, and what the numbers were measured with. The charts are plotly figures in both
palettes, drawn by the same script as the demo's.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from impresslearn.errors import InputError
from impresslearn.report.charts import Chart, charts_of
from impresslearn.report.interactive import draw
from impresslearn.report.markup import asset, figures_json
from impresslearn.report.palette import DARK, LIGHT
from impresslearn.report.results import Record
from impresslearn.report.tables import Cells, tables_of
from impresslearn.report.wording import duration, said, spaced

SCALE_NOTES = {
    "smoke": "smoke run: shows that everything works, its numbers mean little",
    "small": "small run: real data, reduced",
    "paper": "the paper's scale",
}


def write_report(records: Sequence[Record], path: Path) -> None:
    """Write the records to `path` as one self-contained HTML file of about 5 MB.

    Raises InputError if a figure or table has no rows, or the file cannot be written.
    """
    from plotly.offline import get_plotlyjs

    charts = {record.target: charts_of(record) for record in records}
    tables = {record.target: tables_of(record) for record in records}
    placed = {
        _place(record, number): chart
        for record in records
        for number, chart in enumerate(charts[record.target])
    }
    page = Template(asset("results.html")).substitute(
        title="ImpressLearn results",
        lead=escape(_lead(records)),
        light=LIGHT.css(),
        dark=DARK.css(),
        style=asset("page.css"),
        contents="\n".join(map(_entry, records)),
        targets="\n".join(_target(r, charts[r.target], tables[r.target]) for r in records),
        figures=figures_json(
            *(
                {id_: draw(chart, colours) for id_, chart in placed.items()}
                for colours in (LIGHT, DARK)
            )
        ),
        plotly=get_plotlyjs(),
        script=asset("page.js"),
    )
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None


def description(chart: Chart) -> str:
    """The chart in a sentence, for those who do not see it."""
    kinds = {"box": "Box plot", "bar": "Bar chart", "line": "Line chart", "heatmap": "Heat map"}
    names = [each.name for each in getattr(chart, "series", ()) if each.name]
    across = [each.name for each in getattr(chart, "references", ())]
    what = getattr(chart, "value_title", "") or chart.y.title
    over = f"{chart.x.title} and {chart.y.title}" if chart.kind == "heatmap" else chart.x.title
    return (
        f"{kinds[chart.kind]} of {what} over {over}"
        + (f" for {', '.join(names)}" if names else "")
        + (f", with {', '.join(across)} as reference" if across else "")
    )


def _lead(records: Sequence[Record]) -> str:
    count = len(records)
    work = sum(record.job_seconds or record.seconds for record in records)
    rows = sum(len(record.rows) for record in records)
    return (
        f"{count} {'target' if count == 1 else 'targets'} of the reproduction, "
        f"{rows:,} measurements, {duration(work)} of computing."
    )


def _entry(record: Record) -> str:
    finding = f"<small>{escape(record.finding)}</small>" if record.finding else ""
    return (
        f'<li><a href="#{_id(record)}">{escape(record.title)}</a> {_badge(record)} {finding}</li>'
    )


def _target(record: Record, charts: Sequence[Chart], tables: Sequence[Cells]) -> str:
    told = {
        "The paper": escape(record.claim),
        "Found here": f'<span class="finding">{escape(record.finding)}</span>'
        if record.finding
        else "",
        "Data": escape(record.data),
        "Scale": escape(SCALE_NOTES[record.scale]),
    }
    parts = [
        f'<section class="target" id="{_id(record)}">',
        f"<h2>{escape(record.title)} {_badge(record)}</h2>",
        "<dl>",
        *(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in told.items() if text),
        "</dl>",
        *(_figure(_place(record, number), chart) for number, chart in enumerate(charts)),
        *map(_table, tables),
        _circumstances(record),
        "</section>",
    ]
    return "\n".join(parts)


def _figure(place: str, chart: Chart) -> str:
    title = f"<h3>{escape(chart.title)}</h3>" if chart.title else ""
    caption = f"<p>{escape(chart.caption)}</p>" if chart.caption else ""
    return (
        f'{title}{caption}<div class="wide"><div class="figure" id="{place}" role="img" '
        f'aria-label="{escape(description(chart))}"></div></div>'
    )


def _table(table: Cells) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        marks = (' class="right"' if right else "" for right in table.numeric)
        scope = ' scope="col"' if tag == "th" else ""
        told = (f"<{tag}{scope}{m}>{escape(c)}</{tag}>" for c, m in zip(cells, marks, strict=True))
        return f"<tr>{''.join(told)}</tr>"

    rows = "\n".join(line(row, "td") for row in table.rows)
    return (
        (f"<h3>{escape(table.title)}</h3>\n" if table.title else "")
        + '<div class="scroll"><table class="means">\n'
        + f"<thead>{line(table.header, 'th')}</thead>\n<tbody>{rows}</tbody></table></div>"
        + (f'\n<p class="note">{escape(table.note)}</p>' if table.note else "")
    )


def _circumstances(record: Record) -> str:
    seeds = ", ".join(map(str, record.seeds)) or "none"
    time = f"{duration(record.seconds)} for this run"
    if record.job_seconds is not None:
        time += f", {duration(record.job_seconds)} for all its jobs together"
    return (
        "<details><summary>Settings, versions, hardware and time</summary>\n<dl>"
        f"<dt>Seeds</dt><dd>{escape(seeds)}</dd>"
        f"{_facts(record.settings)}"
        f"<dt>Versions</dt><dd>{escape(_listed(record.versions))}</dd>"
        f"<dt>Hardware</dt><dd>{escape(_listed(record.hardware))}</dd>"
        f"<dt>Time</dt><dd>{escape(time)}</dd></dl></details>"
    )


def _facts(values: Mapping[str, Any]) -> str:
    return "".join(
        f"<dt>{escape(spaced(str(name)))}</dt><dd>{escape(said(value))}</dd>"
        for name, value in values.items()
    )


def _listed(values: Mapping[str, Any]) -> str:
    return " · ".join(f"{spaced(str(name))} {said(value)}" for name, value in values.items())


def _badge(record: Record) -> str:
    return f'<span class="scale {record.scale}">{record.scale}</span>'


def _id(record: Record) -> str:
    return f"target-{record.target}"


def _place(record: Record, number: int) -> str:
    return f"figure-{record.target}-{number + 1}"
