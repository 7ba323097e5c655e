"""Result records -> pictures: terminal tables, Markdown, static figures, self-contained HTML pages.

The input is what an experiment writes: plain dictionaries, lists, strings and numbers. Nothing here
imports torch or any other part of the library, so old records stay readable and a report costs no
model. `records` reads and checks the records, `specification` what they ask to be shown, `findings`
what people found in them. `statistics` averages, `charts` turns rows into Altair charts, `tables`
into tables; `page` writes HTML, `files` CSV and pictures, `demo` shows the demo's results.

The names below are imported on first use: a command that words a number must not wait for Altair.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "check_demo_record": "demo",
    "markdown_of": "tables",
    "parse_record": "records",
    "printable_of": "tables",
    "read_findings": "findings",
    "read_record": "records",
    "read_records": "records",
    "tasks_table": "demo",
    "unshown": "findings",
    "write_csv": "files",
    "write_demo_report": "demo",
    "write_figures": "files",
    "write_report": "page",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"impresslearn.report.{_HOME[name]}"), name)
