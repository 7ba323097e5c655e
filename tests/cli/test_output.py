"""Names and labels cannot steer a terminal; every stream and reader is good enough."""

import io
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from impresslearn.cli import main, shared
from impresslearn.errors import InputError, visible

EVIL = "cat\t0.99\nrow2\x1b[2J\x9b2J\u202e\x85\u2028\r\udcff"
SHOWN = r"cat\t0.99\nrow2\x1b[2J\x9b2J\u202e\x85\u2028\r\udcff"
PLAIN = 'Übung [red] "x" 訓練 🙂 \\t 5\xa0kB \u3000 می\u200cخواهم 👩\u200d💻'


@pytest.mark.parametrize(("text", "shown"), [(PLAIN, PLAIN), (EVIL, SHOWN), ("", "")])
def test_only_unprintable_characters_are_escaped(text, shown):
    assert visible(text) == shown
    assert visible(shown) == shown


WAYS = {
    "cells": (lambda: shared.echo(EVIL, EVIL), f"{SHOWN}\t{SHOWN}\n"),
    "table": (lambda: shared.print_table(["task", "bytes"], [[EVIL, "1"]]), "task  "),
    "message": (lambda: shared.info(EVIL), SHOWN),
    "json": (lambda: shared.print_json({"a": PLAIN}), '{\n "a": "\\u00dcbung'),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_name_forges_no_rows_and_steers_no_terminal(way, capsys):
    write, expected = WAYS[way]
    write()
    printed = "".join(capsys.readouterr())
    assert printed.startswith(expected)
    assert all(line.replace("\t", "").isprintable() for line in printed[:-1].split("\n"))
    if way == "json":
        assert json.loads(printed) == {"a": PLAIN}


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_characters_that_a_stream_cannot_encode_become_escapes(monkeypatch, encoding):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]

    def app(**_):
        shared.echo("… é 訓\udcff")
        raise InputError("no task 'é\x1b[2J\n'")

    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr("impresslearn.cli.app.app", app)
    with pytest.raises(SystemExit):
        main()
    for stream in streams:
        stream.flush()
    expected = ["… é 訓\\udcff\n", "error: no task 'é\\x1b[2J '\n"]
    assert [stream.buffer.getvalue() for stream in streams] == [
        text.encode(encoding, "backslashreplace") for text in expected
    ]


@pytest.mark.parametrize("full", [False, True])
def test_output_that_nobody_takes(full):
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
    assert result.returncode == (5 if full else 1)
    assert result.stderr.count("\n") == int(full)


def test_what_a_terminal_showed_fits_80_columns():
    """terminal.txt was captured at 80 columns; `test_store_commands` looks at what commands say."""
    lines = Path(__file__).with_name("terminal.txt").read_text("utf-8").splitlines()
    assert sum(line.startswith("$ ") for line in lines) == 9
    assert max(map(len, lines)) <= 80
