"""What names and labels hold is shown, never obeyed; every stream and reader is good enough."""

import ast
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from impresslearn.cli import main, output
from impresslearn.cli.predict import _print_rows
from impresslearn.errors import InputError, visible
from impresslearn.tables import Table

EVIL = "cat\t0.99\nrow2\x1b[2J\x9b2J\u202e\x85\u2028\r\udcff"
SHOWN = r"cat\t0.99\nrow2\x1b[2J\x9b2J\u202e\x85\u2028\r\udcff"
PLAIN = 'Übung [red] "x" 訓練 🙂 \\t 5\xa0kB \u3000 می\u200cخواهم 👩\u200d💻'


@pytest.mark.parametrize(("text", "shown"), [(PLAIN, PLAIN), (EVIL, SHOWN), ("", "")])
def test_only_what_is_not_printable_is_escaped(text, shown):
    assert visible(text) == shown
    assert visible(shown) == shown


ROW = {"name": EVIL, "label": EVIL, "confidence": 1.0, "probabilities": [1.0]}
FILE = {"name": np.str_("\udcff.png"), "label": np.str_("\udcff.png"), "confidence": 1.0}

WAYS = {
    "rows": (lambda: _print_rows([ROW], (EVIL,)), f"{SHOWN}\t{SHOWN}\t1.0000\t{SHOWN}="),
    "file": (lambda: _print_rows([FILE], ("a",)), "\\udcff.png\t\\udcff.png\t1.0000\n"),
    "table": (lambda: output.print_table([EVIL], [[EVIL]]), f"{SHOWN}\n{SHOWN}"),
    "facts": (lambda: output.print_facts([(EVIL, EVIL)]), f"{SHOWN}  {SHOWN}"),
    "line": (lambda: output.echo(EVIL), SHOWN),
    "remark": (lambda: output.info(EVIL), SHOWN),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_name_forges_no_rows_and_steers_no_terminal(way, capsys):
    write, expected = WAYS[way]
    write()
    told = "".join(capsys.readouterr())
    assert told.startswith(expected)
    assert all(line.replace("\t", "").isprintable() for line in told[:-1].split("\n"))


def test_a_table_on_a_terminal(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", terminal)
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb"), ("COLUMNS", "90")):
        monkeypatch.setenv(name, value)
    output.print_table(["task"], [[EVIL], ["[red]"]])
    assert [line.rstrip() for line in terminal.getvalue().splitlines()] == ["task", SHOWN, "[red]"]


def test_no_column_is_lost_on_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "30")
    header = ("method", "average accuracy", "bytes per task", "forgetting", "transfer")
    rows = tuple((name, *["91.0 ± 0.6 points"] * 4) for name in ("ours", "theirs"))
    output.print_rich(Table(header, rows, (False, *[True] * 4), title="All").printable())
    said = capsys.readouterr().out
    for word in ("method", "ours", "theirs", "accuracy", "transfer"):
        assert word in said
    assert said.count("91.0 ± 0.6 points") == 8


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
@pytest.mark.parametrize("text", [PLAIN, EVIL])
def test_json_keeps_the_text_on_every_stream(monkeypatch, encoding, text):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    output.print_json({text: [text]})
    stream.flush()
    written = stream.buffer.getvalue().decode(encoding)
    assert json.loads(written) == {text: [text]}
    assert all(line == visible(line) for line in written.split("\n"))
    assert (PLAIN.split()[0] in written) == (text == PLAIN and encoding == "utf-8")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_what_a_stream_cannot_encode_becomes_an_escape(monkeypatch, encoding):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]

    def app(**_):
        output.echo("… é 訓\udcff")
        output.print_table(["é"], [["訓"]])
        raise InputError("no task 'é\x1b[2J\n'")

    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    monkeypatch.setattr("impresslearn.cli.app.app", app)
    with pytest.raises(SystemExit):
        main()
    for stream in streams:
        stream.flush()
    expected = ["… é 訓\\udcff\né\n訓\n", "error: no task 'é\\x1b[2J '\n"]
    assert [stream.buffer.getvalue() for stream in streams] == [
        text.encode(encoding, "backslashreplace") for text in expected
    ]


@pytest.mark.parametrize(("full", "status", "said"), [(False, 1, ""), (True, 2, "error: ")])
def test_output_that_nobody_takes(full, status, said):
    if full and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    reader, writer = os.pipe()
    os.close(reader)
    if full:
        os.close(writer)
        writer = os.open("/dev/full", os.O_WRONLY)
    command = [sys.executable, "-m", "impresslearn", "--help"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert result.returncode == status
    assert (result.stderr.startswith(said), result.stderr.count("\n")) == (True, int(full))


def test_commands_print_through_nothing_else():
    names = {"print", "secho", "confirm", "prompt", "Console"}
    for file in Path(output.__file__).parent.glob("*.py"):
        calls = [n for n in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(n, ast.Call)]
        called = {getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls}
        assert file.stem == "output" or not called & names, file.name


def test_errors_name_options_in_place_of_settings(capsys):
    output.error("a", InputError("say with label_column;\ncreate it with num_classes=3"))
    assert capsys.readouterr().err == "a: say with --label-column; create it with --classes=3\n"
