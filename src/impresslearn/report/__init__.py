"""Result records -> pictures: terminal tables, Markdown, static figures, self-contained HTML pages.

The input is what an experiment writes: plain dictionaries, lists, strings and numbers. Nothing here
imports torch or any other part of the library, so old records stay readable and a report costs no
model. There are two kinds of record.

The demo's (`record` checks it): `demo_table` prints, `demo_figures` draws, `demo_page` writes.

The reproduction's, one a target: `results` reads and checks them, what they ask to be shown is in
`specification`, what people found in them in `findings`. `statistics` averages; `charts` works out
every picture as plain numbers, which `interactive` (plotly) and `static` (matplotlib) draw;
`tables` makes tables, `page` the HTML, and `files` CSV and pictures.
"""

from impresslearn.report.demo_page import write_demo_report
from impresslearn.report.demo_table import tasks_table
from impresslearn.report.files import write_csv, write_figures
from impresslearn.report.findings import read_findings, unshown
from impresslearn.report.page import write_report
from impresslearn.report.record import check_demo_record
from impresslearn.report.results import Record, parse_record, read_record, read_records
from impresslearn.report.summary import markdown_of, printable_of

__all__ = [
    "Record",
    "check_demo_record",
    "markdown_of",
    "parse_record",
    "printable_of",
    "read_findings",
    "read_record",
    "read_records",
    "tasks_table",
    "unshown",
    "write_csv",
    "write_demo_report",
    "write_figures",
    "write_report",
]
