"""What a report leaves besides its page: every row as CSV, and every figure as a picture."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from impresslearn.errors import InputError
from impresslearn.report.charts import charts_of
from impresslearn.report.records import Record

FORMATS = ("svg", "png", "pdf")


def write_csv(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write TARGET.csv for each record: a line a row, a column a key, empty where a row lacks it.

    Raises InputError if the folder cannot be written.
    """
    written = []
    for record in records:
        path = _ready(folder) / f"{record.target}.csv"
        keys = list(dict.fromkeys(key for row in record.rows for key in row))
        try:
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, keys, restval="")
                writer.writeheader()
                writer.writerows(record.rows)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from None
        written.append(path)
    return written


def write_figures(records: Sequence[Record], folder: Path, suffix: str = "svg") -> list[Path]:
    """Write every figure as TARGET-NUMBER-TITLE.svg (or png, pdf), without a browser.

    Raises InputError if a figure has no rows, the folder cannot be written or the format is none of
    these.
    """
    if suffix not in FORMATS:
        raise InputError(f"a picture is one of {', '.join(FORMATS)}, got {suffix!r}")
    drawn = [(record, charts_of(record)) for record in records]
    written = []
    for record, charts in drawn:
        for number, (figure, chart) in enumerate(zip(record.figures, charts, strict=True), start=1):
            words = re.sub(r"[^a-z0-9]+", "-", figure.title.lower()).strip("-")[:40]
            name = f"{record.target}-{number}-{words}".rstrip("-")
            path = _ready(folder) / f"{name}.{suffix}"
            try:
                chart.save(path, format=suffix, scale_factor=2 if suffix == "png" else 1)
            except OSError as error:
                raise InputError(f"cannot write {path}: {error.strerror or error}") from None
            written.append(path)
    return written


def _ready(folder: Path) -> Path:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {folder}: {error.strerror or error}") from None
    return Path(folder)
