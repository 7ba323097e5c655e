"""The terminal's table, as it is printed."""

import io

from rich.console import Console

from impresslearn.report import tasks_table


def printed(record) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(tasks_table(record))
    return console.file.getvalue()


def test_lists_tasks_and_means(record):
    lines = [line.split() for line in printed(record).splitlines()]
    assert ["rotated-0", "basis", "90.0%", "95.0%", "–", "4.2", "kB"] in lines
    assert ["rotated-60", "new", "93.0%", "95.0%", "25.0%", "48", "B"] in lines
    assert ["mean", "over", "new", "tasks", "93.0%", "95.0%", "25.0%", "48", "B"] in lines
    assert "forgetting 0 · a SupSup mask takes 4.2 kB · task inference – · 12 s" in printed(record)


def test_brackets_in_a_name_are_no_markup(record):
    record["tasks"][0]["name"] = "[red]site[/red]"
    assert "[red]site[/red]" in printed(record)
