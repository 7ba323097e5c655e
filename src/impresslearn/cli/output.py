"""How commands speak: results on standard output, remarks on standard error, JSON for machines.

Commands print through nothing else, so that what names and labels hold never reaches a terminal
unescaped (see `visible`), and a character that the stream cannot encode becomes an escape.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from impresslearn.errors import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

OPTIONS = {
    "label_column": "--label-column",
    "num_classes": "--classes",
    "as `labels`": "with --labels",
}
"""Options for what errors of the library call a setting."""
WIDEST = 1000
"""Characters that a table may be wide."""
LARGEST_TABLE = 2000
"""Rows that are laid out; each takes about 0.4 ms."""


def accept_every_character() -> None:
    """Lets both streams write what their encoding lacks as backslash escapes."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def echo(*cells: str) -> None:
    """A line of the result; several cells have tabs between."""
    print("\t".join(map(visible, cells)), flush=True)


def info(line: str) -> None:
    """A line that is no result."""
    print(visible(line), file=sys.stderr, flush=True)


def error(about: str, failure: Exception) -> None:
    """What is wrong, in a line with options in place of the library's settings."""
    line = " ".join(str(failure).split())
    for setting, named in OPTIONS.items():
        line = line.replace(setting, named)
    info(f"{about}: {line}")


def confirmed(question: str) -> bool:
    """Whether the person at the terminal says yes."""
    return typer.confirm(visible(question), err=True)


def print_rich(renderable: "RenderableType") -> None:
    """What rich lays out; the texts in it must be visible already.

    A table that needs more than the terminal's width is wider: cut to it, it would lose columns.
    """
    from rich.console import Console

    console = Console()
    unbounded = console.options.update(width=WIDEST)
    least = console.measure(renderable, options=unbounded).minimum
    console.width = max(console.width, least)
    console.print(renderable)


def print_json(value: Any) -> None:
    """One JSON document, in ASCII where the stream or a terminal would not take it as it is."""
    text = json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False)
    if not _can_be_shown(text):
        text = json.dumps(value, indent=1, allow_nan=False)
    print(text, flush=True)


def print_result(as_json: bool, told: Any, *lines: str) -> None:
    """The result as JSON for a machine, or as lines for a person."""
    if as_json:
        print_json(told)
    else:
        for line in lines:
            echo(line)


def _can_be_shown(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return all(line == visible(line) for line in text.split("\n"))


def counted(count: int, thing: str) -> str:
    """1, "task" -> "1 task"; 1200, "task" -> "1,200 tasks"."""
    return f"1 {thing}" if count == 1 else f"{count:,} {thing}s"


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Lines of a name and a value, the values below one another; None is left out."""
    shown = [(name, str(value)) for name, value in facts if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        echo(f"{name:<{width}}  {value}")


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()
) -> None:
    """A table for a terminal; for a file, a pipe or very many rows lines with tabs between."""
    shown = list(rows)
    if not sys.stdout.isatty() or len(shown) > LARGEST_TABLE:
        for row in (headings, *shown):
            echo(*row)
        return
    from impresslearn.tables import Table

    header, *cells = (tuple(map(visible, row)) for row in (headings, *shown))
    numeric = tuple(heading in right for heading in headings)
    print_rich(Table(header, tuple(cells), numeric).printable(ruled=False))
