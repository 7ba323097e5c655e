"""What a report leaves besides its page: every row as CSV, and every figure as a picture."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from impresslearn.errors import InputError
from impresslearn.report.charts import charts_of
from impresslearn.report.results import Record
from impresslearn.report.static import write_figure


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
    """Write every figure as TARGET-NUMBER-TITLE.svg (or png, pdf).

    Raises InputError if a figure has no rows or the folder cannot be written,
    MissingDependencyError without matplotlib.
    """
    charts = [(record, charts_of(record)) for record in records]
    written = []
    for record, of_record in charts:
        for number, chart in enumerate(of_record, start=1):
            path = _ready(folder) / f"{_file_name(record.target, number, chart.title)}.{suffix}"
            write_figure(chart, path)
            written.append(path)
    return written


def _file_name(target: str, number: int, title: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return f"{target}-{number}-{words[:40].rstrip('-')}".rstrip("-")


def _ready(folder: Path) -> Path:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {folder}: {error.strerror or error}") from None
    return Path(folder)
