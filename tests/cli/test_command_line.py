"""What all commands share: start-up time, help, one-line errors and exit statuses."""

import os
import re
import resource
import shlex
import subprocess
import sys
import warnings

import pytest
import typer.main
from typer.testing import CliRunner

from impresslearn.cli import main
from impresslearn.cli.app import app
from impresslearn.errors import UnknownTaskError

COMMANDS = sorted(typer.main.get_command(app).commands)


def command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_help_lists_the_commands_in_under_half_a_second():
    # Processor time, not the clock: other programs on this machine are not the command's fault.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = command("-m", "impresslearn", "--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    listed = re.findall(r"^  (\w+)  ", result.stdout.partition("Commands:")[2], re.MULTILINE)
    assert sorted(listed) == COMMANDS
    assert "..." not in result.stdout.replace("[ARGS]...", "")  # no summary is cut
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_help_loads_nothing_heavy():
    result = command("-c", "import impresslearn.cli.app, sys; print(*sys.modules)")
    assert not {"torch", "numpy", "numba", "altair", "rich"} & set(result.stdout.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_parses(name):
    text = " ".join(CliRunner().invoke(app, [name, "--help"]).stdout.split())
    example = re.search(r"Example: impresslearn (.*?) (?:Arguments|Options):", text)
    words = shlex.split(example[1])
    assert words[0] == name
    parsed = typer.main.get_command(app).commands[name]
    parsed.make_context(name, words[1:])  # raises for an option that does not exist


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--version"], 0),
        (["nope"], 2),
        (["demo", "--seed", "x"], 2),
        (["learn", "s.impress"], 2),
        (["tasks", "no.impress"], 1),
    ],
)
def test_exit_statuses(arguments, status):
    result = command("-m", "impresslearn", *arguments)
    assert result.returncode == status
    assert result.stdout.startswith("impresslearn ") if status == 0 else result.stdout == ""
    assert "Traceback" not in result.stderr
    if status == 1:
        assert result.stderr.startswith("error: the store no.impress does not exist")
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UnknownTaskError("no task\n 'x\x1b'"), 1, "error: no task 'x\\x1b'\n"),
        (OSError(28, "No space left"), 5, "error: No space left\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_one_line(monkeypatch, capsys, error, status, line):
    def raising(**_):
        raise error

    monkeypatch.setattr("impresslearn.cli.app.app", raising)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == status
    assert capsys.readouterr() == ("", line)


def test_warnings_are_one_line_and_waiting_threads_sleep(monkeypatch, capsys):
    def warn(**_):
        warnings.showwarning("low\x1b", UserWarning, "file.py", 3)

    monkeypatch.setattr("impresslearn.cli.app.app", warn)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(os, "environ", {})
    main()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert capsys.readouterr().err == "warning: low\\x1b\n"
