"""Printing: results on standard output, messages on standard error.

Commands print through nothing else. A task or a file may have any name, so every text goes through
`visible`, which keeps control characters away from the terminal.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from impresslearn.errors import visible


def accept_every_character() -> None:
    """Makes both streams write the characters that their encoding lacks as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def echo(*cells: str) -> None:
    """Prints a line of the result; tabs separate several cells."""
    print("\t".join(map(visible, cells)), flush=True)


def info(line: str) -> None:
    """Prints a message on standard error."""
    print(visible(line), file=sys.stderr, flush=True)


def error(failure: Exception, about: str = "error") -> None:
    """Prints an error as one line on standard error."""
    info(f"{about}: {' '.join(str(failure).split())}")


def print_json(value: Any) -> None:
    """Prints one JSON document in ASCII, which every terminal and encoding takes."""
    print(json.dumps(value, indent=1, allow_nan=False), flush=True)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints aligned columns: the first one to the left, all others to the right."""
    from impresslearn.tables import Table

    cells = tuple(tuple(map(visible, row)) for row in rows)
    numeric = (False, *(True for _ in headings[1:]))
    for line in Table(tuple(headings), cells, numeric).text().splitlines():
        echo(line)
