"""The demo's tasks as a table for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from impresslearn.report.record import check_demo_record, tasks_of
from impresslearn.report.wording import duration, percent, points, size

COLUMNS = ("ImpressLearn", "SupSup", "Single mask", "Bytes")


def tasks_table(results: Mapping[str, Any]) -> Table:
    """One row a task, basis tasks first, then the mean over new tasks; print it with rich.

    Raises InputError if the record lacks something.
    """
    check_demo_record(results)
    summary = results["summary"]
    table = Table(
        box=box.SIMPLE_HEAD, caption=_caption(summary), caption_justify="left", show_footer=True
    )
    table.add_column("Task", footer="mean over new tasks", overflow="fold")
    table.add_column("Role")
    footers = (
        percent(summary["new_task_accuracy"]),
        percent(summary["supsup_accuracy"]),
        percent(summary["single_mask_accuracy"]),
        size(summary["bytes_per_new_task"]),
    )
    for heading, footer in zip(COLUMNS, footers, strict=True):
        table.add_column(heading, footer=footer, justify="right", no_wrap=True)
    for role in ("basis", "new"):
        for task in tasks_of(results, role):
            table.add_row(
                Text(str(task["name"])),  # Text, not str: brackets in a name are no markup
                role,
                percent(task["accuracy"]),
                percent(task["supsup_accuracy"]),
                percent(task["single_mask_accuracy"]),
                size(task["bytes"]),
            )
        table.add_section()
    return table


def _caption(summary: Mapping[str, Any]) -> str:
    parts = (
        f"forgetting {points(summary['forgetting'])}",
        f"a SupSup mask takes {size(summary['bytes_per_supsup_mask'])}",
        f"task inference {percent(summary['task_inference_accuracy'])}",
        duration(summary["seconds"]),
    )
    return " · ".join(parts)
