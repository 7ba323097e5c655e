"""What all commands share: start-up time, help, errors, exit statuses, and safe output."""

import io
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import typer.main

from impresslearn.cli import main, shared
from impresslearn.cli.app import app
from impresslearn.errors import InputError, StoreBusyError, print_line, visible
from toys import run

COMMANDS = sorted(typer.main.get_command(app).commands)


def command(*words: str, out: int = subprocess.PIPE) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *words], stdout=out, stderr=subprocess.PIPE, text=True)


def test_help_lists_the_commands_in_under_half_a_second():
    # Processor time, not the clock: other programs on this machine are not the command's fault.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = command("-m", "impresslearn", "--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    listed = re.findall(r"^  (\w+)  ", result.stdout.partition("Commands:")[2], re.MULTILINE)
    assert sorted(listed) == COMMANDS
    assert "..." not in result.stdout.replace("[ARGS]...", "")  # no summary is cut
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_parses(name):
    text = " ".join(run(name, "--help").split())
    example = re.search(r"Example: impresslearn (.*?) (?:Arguments|Options):", text)
    words = shlex.split(example[1])
    assert words[0] == name
    parsed = typer.main.get_command(app).commands[name]
    parsed.make_context(name, words[1:])  # raises for an option that does not exist


@pytest.mark.parametrize(("line", "status"), [("--version", 0), ("no", 2), (f"info {__file__}", 1)])
def test_exit_statuses(line, status):
    result = command("-m", "impresslearn", *line.split())
    assert result.returncode == status
    assert result.stdout.startswith("impresslearn ") if status == 0 else result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.fixture
def running(monkeypatch):
    """Runs `main` with a function in place of the commands."""

    def run(function):
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        monkeypatch.setattr("impresslearn.cli.app.app", lambda **_: function())
        main()

    return run


@pytest.mark.parametrize(
    ("error", "status", "line", "out"),
    [
        (OSError(28, "No space left"), 5, "error: No space left\n", ""),
        (KeyboardInterrupt(), 130, "", ""),
        (StoreBusyError("in use"), 4, "error: in use\n", '{"error": "in use", "exit_status": 4}\n'),
    ],
)
def test_an_error_is_one_line_and_with_json_an_object(
    running, monkeypatch, capsys, error, status, line, out
):
    def fail():
        raise error

    monkeypatch.setattr(sys, "argv", ["impresslearn", "learn", "s", *["--json"] * bool(out)])
    with pytest.raises(SystemExit) as caught:
        running(fail)
    assert caught.value.code == status
    assert capsys.readouterr() == (out, line)


def test_warnings_are_one_line_and_waiting_threads_sleep(running, monkeypatch, capsys):
    monkeypatch.setattr(os, "environ", {})
    running(lambda: warnings.showwarning("low\x1b", UserWarning, "file.py", 3))
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert capsys.readouterr().err == "warning: low\\x1b\n"


EVIL = "cat\t0.99\nrow2\x1b[2J\x9b2J\u202e\x85\u2028\r\udcff"
SHOWN = r"cat\t0.99\nrow2\x1b[2J\x9b2J\u202e\x85\u2028\r\udcff"
PLAIN = 'Übung [red] "x" 訓練 🙂 \\t 5\xa0kB \u3000 می\u200cخواهم 👩\u200d💻'
WAYS = {
    "cells": (lambda: shared.echo(EVIL, EVIL), f"{SHOWN}\t{SHOWN}\n"),
    "table": (lambda: shared.print_table([{"task": EVIL, "bytes": 1}]), "task  "),
    "message": (lambda: print_line(EVIL), SHOWN),
    "json": (lambda: shared.print_json({"a": PLAIN}), '{\n "a": "\\u00dcbung'),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_name_forges_no_rows_and_steers_no_terminal(way, capsys):
    assert visible(PLAIN) == PLAIN
    write, expected = WAYS[way]
    write()
    printed = "".join(capsys.readouterr())
    assert printed.startswith(expected)
    assert all(line.replace("\t", "").isprintable() for line in printed[:-1].split("\n"))
    if way == "json":
        assert json.loads(printed) == {"a": PLAIN}


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_characters_that_a_stream_cannot_encode_become_escapes(running, monkeypatch, encoding):
    def say():
        shared.echo("… é 訓\udcff")
        raise InputError("no task 'é\x1b[2J\n'")

    red = "\x1b[31merror\x1b[0m" if encoding == "utf-8" else "error"
    expected = {"stdout": "… é 訓\\udcff\n", "stderr": f"{red}: no task 'é\\x1b[2J '\n"}
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding=encoding) for name in expected}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    streams["stderr"].isatty = lambda: True
    monkeypatch.setenv("NO_COLOR", "1" if encoding == "ascii" else "")
    with pytest.raises(SystemExit):
        running(say)
    for name, text in expected.items():
        streams[name].flush()
        assert streams[name].buffer.getvalue() == text.encode(encoding, "backslashreplace")


@pytest.mark.parametrize("full", [False, True])
def test_output_that_nobody_takes(full):
    if full and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    reader, writer = os.pipe()
    os.close(reader)
    if full:
        os.close(writer)
        writer = os.open("/dev/full", os.O_WRONLY)
    result = command("-m", "impresslearn", "--help", out=writer)
    os.close(writer)
    assert result.returncode == (5 if full else 1)
    assert result.stderr.count("\n") == int(full)


def test_what_a_terminal_showed_fits_80_columns():
    """terminal.txt was captured at 80 columns; `test_store_commands` looks at what commands say."""
    lines = Path(__file__).with_name("terminal.txt").read_text("utf-8").splitlines()
    assert sum(line.startswith("$ ") for line in lines) == 9
    assert max(map(len, lines)) <= 80
