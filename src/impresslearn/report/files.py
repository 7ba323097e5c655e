"""What a report leaves besides its page: every row as CSV, and every figure as a picture."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from impresslearn.errors import InputError
from impresslearn.files import write_file
from impresslearn.report.charts import charts_of
from impresslearn.report.records import Record

FORMATS = ("svg", "png", "pdf")


def write_csv(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write TARGET.csv for each record: a line a row, a column a key, empty where a row lacks it.

    Raises InputError if the folder cannot be written.
    """
    written = []
    for record in records:
        keys = list(dict.fromkeys(key for row in record.rows for key in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, keys, restval="")
        writer.writeheader()
        writer.writerows(record.rows)
        path = Path(folder) / f"{record.target}.csv"
        written.append(write_file(path, text.getvalue(), folders=True))
    return written


def write_figures(records: Sequence[Record], folder: Path, suffix: str = "svg") -> list[Path]:
    """Write every figure as TARGET-NUMBER-TITLE.svg (or png, pdf), without a browser.

    Raises InputError if a figure has no rows, the folder cannot be written or the format is none of
    these.
    """
    if suffix not in FORMATS:
        raise InputError(f"a picture is one of {', '.join(FORMATS)}, got {suffix!r}")
    charts = [(record, charts_of(record)) for record in records]
    written = []
    for record, drawn in charts:
        for number, (figure, chart) in enumerate(zip(record.figures, drawn, strict=True), start=1):
            words = re.sub(r"[^a-z0-9]+", "-", figure.title.lower()).strip("-")[:40]
            name = f"{record.target}-{number}-{words}".rstrip("-")
            with _writing(Path(folder) / f"{name}.{suffix}") as path:
                chart.save(path, format=suffix, scale_factor=2 if suffix == "png" else 1)
            written.append(path)
    return written


@contextmanager
def _writing(path: Path) -> Iterator[Path]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
