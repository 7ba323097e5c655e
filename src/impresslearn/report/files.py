"""What a report leaves besides its page: every row as CSV, and every figure as a picture."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import vl_convert

from impresslearn.errors import InputError
from impresslearn.files import write_file
from impresslearn.report.charts import VEGA_LITE, charts_of
from impresslearn.report.records import Record

CONVERT: dict[str, Callable[[Any, str], str | bytes]] = {
    "svg": vl_convert.vegalite_to_svg,
    "png": lambda chart, version: vl_convert.vegalite_to_png(chart, version, scale=2),
    "pdf": vl_convert.vegalite_to_pdf,
}
FORMATS = tuple(CONVERT)


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
    pictures: dict[str, str | bytes] = {}
    for record in records:
        for number, chart in enumerate(charts_of(record), start=1):
            figure = record.figures[number - 1]
            words = re.sub(r"[^a-z0-9]+", "-", figure.title.lower()).strip("-")[:40]
            name = f"{record.target}-{number}-{words}".rstrip("-")
            pictures[name] = CONVERT[suffix](chart.to_dict(validate=False), VEGA_LITE)
    return [
        write_file(Path(folder) / f"{name}.{suffix}", picture, folders=True)
        for name, picture in pictures.items()
    ]
