"""What a report leaves: a page, every row as CSV, and every figure as a picture.

The page is one HTML file that opens from the file system and loads nothing: the paper's claim and
what was found, the data, charts, tables, and what the numbers were measured with. Vega and the
charts travel in it; its content security policy allows that script and no other, and no load.
"""

import csv
import io
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from benchmarks.report.cells import Cells
from benchmarks.report.charts import VEGA_LITE, charts_of
from benchmarks.report.charts.theme import THEME
from benchmarks.report.quantities import duration, said, spaced
from benchmarks.report.records import Record
from benchmarks.report.tables import highlights_of, means_of, tables_of, told
from impresslearn.errors import InputError
from impresslearn.files import write_file

CONVERT: dict[str, Callable[[Any, str], str | bytes]] = {
    "svg": vl_convert.vegalite_to_svg,
    "png": lambda chart, version: vl_convert.vegalite_to_png(chart, version, scale=2),
    "pdf": vl_convert.vegalite_to_pdf,
}
FORMATS = tuple(CONVERT)
SCALES = {
    "smoke": "smoke run: shows that everything works, its numbers mean little",
    "small": "small run: real data, reduced",
    "paper": "the paper's scale",
}


def write_csv(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write TARGET.csv and TARGET-means.csv for each record.

    The first has a line a row and a column a key, empty where a row lacks it; the second the means
    of the tables, with unit, half the 95% interval and n. Raises InputError if the folder cannot be
    written.
    """
    written = []
    for record in records:
        for name, rows in (
            (record.target, record.rows),
            (f"{record.target}-means", means_of(record)),
        ):
            text = io.StringIO()
            writer = csv.DictWriter(text, dict.fromkeys(key for row in rows for key in row))
            writer.writeheader()
            writer.writerows(rows)
            path = Path(folder) / f"{name}.csv"
            written.append(write_file(path, text.getvalue(), folders=True))
    return written


def write_figures(records: Sequence[Record], folder: Path, suffix: str = "svg") -> list[Path]:
    """Write every figure as TARGET-NUMBER-TITLE.svg (or png, pdf), without a browser.

    Raises InputError if a figure has no rows, the folder cannot be written or the format is none of
    these.
    """
    if suffix not in FORMATS:
        raise InputError(f"a picture is one of {', '.join(FORMATS)}, got {suffix!r}")
    pictures: dict[str, str | bytes] = {}
    for record in records:
        drawn = zip(record.figures, charts_of(record), strict=True)
        for number, (figure, chart) in enumerate(drawn, start=1):
            words = re.sub(r"[^a-z0-9]+", "-", figure.title.lower()).strip("-")[:40]
            name = f"{record.target}-{number}-{words}".rstrip("-")
            pictures[name] = CONVERT[suffix](chart.to_dict(validate=False), VEGA_LITE)
    return [
        write_file(Path(folder) / f"{name}.{suffix}", picture, folders=True)
        for name, picture in pictures.items()
    ]


READING = (
    "± and intervals are 95% t intervals: over the means of the seeds where there are several, "
    "else over the tasks. Accuracies near 100% are drawn on a logarithmic scale of the error, on "
    "which 90%, 99% and 99.9% are equally far apart."
)


@dataclass(frozen=True)
class Section:
    """A part of a page: facts, charts and tables.

    name: its address in the page; badge: a word beside the title; lead: a line in the contents;
    highlights: {label, value, note} of the tiles above; told: paragraphs by heading, figures: a
    caption, which may be empty, and its Altair chart; facts: what is folded away at the end.
    """

    name: str
    title: str
    badge: str = ""
    lead: str = ""
    highlights: Sequence[tuple[str, str, str]] = ()
    told: Mapping[str, str] = field(default_factory=dict)
    figures: Sequence[tuple[str, Any]] = ()
    tables: Sequence[Cells] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def write_report(
    records: Sequence[Record], path: Path, title: str = "ImpressLearn results"
) -> Path:
    """Write the records to `path`, which is returned, as one self-contained HTML file of 1 MB.

    Raises InputError if a figure or table has no rows, or the file cannot be written.
    """
    custom = sum(record.is_custom for record in records)
    targets = sum(record.scale != "demo" for record in records) - custom
    facts = {
        "targets of the reproduction": targets,
        "runs of your own": custom,
        "measurements": f"{sum(len(record.rows) for record in records):,}",
        "computing": duration(sum(record.job_seconds or record.seconds for record in records)),
    }
    lead = " · ".join(f"{name}: {value}" for name, value in facts.items() if value)
    return write_page(path, title, lead, list(map(_section, records)), READING)


def write_page(
    path: Path, title: str, lead: str, sections: Sequence[Section], reading: str = ""
) -> Path:
    """Write sections to `path` as one self-contained HTML file of about 1 MB.

    lead: a line below the title; reading: how to read the numbers, at the end. Raises InputError if
    the file cannot be written.
    """
    charts = {
        f"figure-{section.name}-{number}": chart.to_dict(validate=False)
        for section in sections
        for number, (_, chart) in enumerate(section.figures, start=1)
    }
    environment = Environment(
        loader=PackageLoader("benchmarks.report"), autoescape=True, trim_blocks=True,
        undefined=StrictUndefined,
    )  # fmt: skip
    page = environment.get_template("page.html").render(
        title=title,
        lead=lead,
        reading=reading,
        sections=[(each, [(c, Markup(c.html())) for c in each.tables]) for each in sections],
        charts=charts,
        theme=THEME,
        script=Markup(_script()),
        script_hash=Markup(b64encode(sha256(_script().encode()).digest()).decode()),
    )
    return write_file(path, page)


def _section(record: Record) -> Section:
    badge = "your run" if record.is_custom else record.scale
    return Section(
        name=record.target,
        title=record.title,
        badge=badge,
        lead=record.finding,
        highlights=highlights_of(record),
        told=told(record) | {"Data": record.data, "Scale": SCALES.get(badge, "")},
        figures=[
            (figure.caption, chart)
            for figure, chart in zip(record.figures, charts_of(record), strict=True)
        ],
        tables=tables_of(record),
        facts=_facts(record),
    )


@cache
def _script() -> str:
    """Vega, Vega-Lite and what draws the page's charts, as one script without imports."""
    own = (files("benchmarks.report") / "templates" / "page.js").read_text(encoding="utf-8")
    return vl_convert.javascript_bundle(own, vl_version=VEGA_LITE).replace("</script", "<\\/script")


def _facts(record: Record) -> dict[str, str]:
    time = f"{duration(record.seconds)} for this run"
    if record.job_seconds is not None:
        time += f", {duration(record.job_seconds)} for all its jobs together"
    facts = {"Seeds": ", ".join(map(str, record.seeds)) or "none"}
    facts |= {spaced(name): said(value) for name, value in record.settings.items()}
    parts = {"Code": record.code, "Versions": record.versions, "Hardware": record.hardware}
    for name, values in parts.items():
        told = (f"{spaced(key)} {said(each)}" for key, each in values.items() if each is not None)
        facts |= {name: " · ".join(told)} if values else {}
    return facts | ({"Time": time} if record.seconds else {})
