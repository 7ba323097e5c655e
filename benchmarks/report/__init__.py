"""Result records -> pictures: terminal tables, Markdown, static figures, self-contained HTML pages.

The input is what an experiment writes: plain dictionaries, lists, strings and numbers. Nothing here
imports torch or any other part of the library, so old records stay readable and a report costs no
model. `records` reads and checks the records, `specification` what they ask to be shown.
`statistics` averages, `charts` turns rows into Altair charts, `tables` into tables, `cells` into
text; `files` writes HTML, CSV and pictures.

The names below are imported on first use: a command that words a number must not wait for Altair.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "files": ("Section", "write_csv", "write_figures", "write_page", "write_report"),
    "records": ("parse_record", "read_findings", "read_record", "read_records", "unshown"),
    "tables": ("latex_of", "markdown_of", "plain_of", "printable_of"),
}
_HOME = {name: home for home, names in _NAMES.items() for name in names}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"benchmarks.report.{_HOME[name]}"), name)
