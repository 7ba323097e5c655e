"""Result records -> pictures: a terminal table and one self-contained HTML page.

The input is the record that an experiment returns and `results.json` holds: plain dictionaries,
lists, strings and numbers. Nothing here imports torch or any other part of the library, so old
records stay readable and a report costs no model. `record` checks, `table` prints, `figures`
draws, `page` puts the figures and the table into HTML.
"""

from impresslearn.report.page import write_demo_report
from impresslearn.report.record import check_demo_record
from impresslearn.report.table import tasks_table

__all__ = ["check_demo_record", "tasks_table", "write_demo_report"]
