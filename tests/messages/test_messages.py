"""Every wrong use is answered by one line of the library's own words, as `messages.md` lists them.

A wrong use is a Python expression over the names of `names.py`, `toys.py` and `models.py`, or the
arguments of a command. It runs in a folder with the files that `names.py` writes, and leaves them
and the learners as they were. `python tests/messages/test_messages.py --write` writes the messages
anew; for a new wrong use, add a row without a message first.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

from impresslearn.errors import ImpressLearnError

TABLE = Path(__file__).with_name("messages.md")
LONGEST = 400
# Of torch, NumPy, SQLite, pandas and Python, in errors that are about something inside the library.
INTERNAL = (
    *("mat1 and mat2", "Traceback", "grad_fn", "view size", "size mismatch", "aten::"),
    *("Expected all tensors", "not implemented for", "'NoneType' object", "unhashable"),
    *("object has no attribute", "sqlite3.", "database disk image", "unexpected keyword argument"),
    *("positional argument", "could not broadcast", "ufunc", "invalid literal", "<class '", "0x"),
    *("Errno", "tokenizing", "<_io.", "numpy.", "inhomogeneous", "amax()"),
)
HEAD = """# Messages

What the library says to wrong uses. `python tests/messages/test_messages.py --write` writes this
table, and the test compares it with what is said now.
"""


def wrong_uses() -> dict[str, list[str]]:
    """Area -> the lines of code, or of commands, in the table."""
    uses: dict[str, list[str]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            uses[line.removeprefix("## ")] = area = []
        elif line.startswith("| `"):
            area.append(line.split("`")[1].replace("\\|", "|"))
    return uses


def messages() -> dict[str, list[tuple[str, str]]]:
    """Area -> each wrong use and the message; one that is no error of the library is marked so."""
    from names import command, namespace

    names = namespace()
    table = {}
    for area, lines in wrong_uses().items():
        table[area] = []
        for line in lines:
            said = "NO ERROR"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    command(line) if area == "Command line" else eval(line, names)
                except ImpressLearnError as error:
                    said = str(error)
                except Exception as error:
                    said = f"NOT OURS: {type(error).__name__}: {error}"
            said = re.sub(r"/[\w/.-]*/(?=net\.py|no/such)", "…/", said)
            table[area].append((line, said))
    return table


def in_a_folder() -> dict[str, list[tuple[str, str]]]:
    """The messages, with all files in a folder that is removed afterwards."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                return messages()
        finally:
            os.chdir(before)


def as_markdown(table: dict[str, list[tuple[str, str]]]) -> str:
    lines = [HEAD]
    for area, rows in table.items():
        lines += [f"## {area}", "", "| what was done | message |", "|---|---|"]
        for row in rows:
            done, said = (cell.replace("|", "\\|") for cell in row)
            lines.append(f"| `{done}` | {said} |")
        lines.append("")
    return "\n".join(lines)


def test_wrong_uses_get_clear_messages():
    needed = ("fastapi", "httpx", "pandas", "peft", "PIL")
    if missing := [package for package in needed if find_spec(package) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    # A process of its own: other tests register backbones and parametrisations, which are listed.
    said = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True)
    table = json.loads(said.stdout)
    rows = [row for area in table.values() for row in area]
    assert len(rows) >= 300
    for done, said in rows:
        assert said != "NO ERROR", done
        assert not said.startswith("NOT OURS"), (done, said)
        assert said.isprintable(), (done, said)
        assert len(said) <= LONGEST, (done, said)
        assert not [word for word in INTERNAL if word in said], (done, said)
    assert as_markdown(table) == TABLE.read_text(encoding="utf-8"), "run this file with --write"


if __name__ == "__main__":
    sys.path.append(str(TABLE.parents[1]))
    table = in_a_folder()
    if "--write" in sys.argv:
        TABLE.write_text(as_markdown(table), encoding="utf-8")
    else:
        print(json.dumps(table))
