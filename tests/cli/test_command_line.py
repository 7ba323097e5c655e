"""What every command shares: start-up time, one-line errors, exit statuses."""

import os
import re
import resource
import shlex
import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

from impresslearn.cli import main
from impresslearn.cli.app import app
from impresslearn.errors import UnknownTaskError
from impresslearn.learner import ImpressLearner
from impresslearn.learner.creation import DEFAULT_BACKBONE, DEFAULT_PRESET
from impresslearn.networks import create_backbone
from impresslearn.serve import ServeSettings

COMMANDS = (*("demo", "advise", "learn", "predict", "infer", "store", "serve"),)
OF_STORES = (
    *("ls", "show", "report", "verify", "export", "import", "versions", "restore", "compact", "rm"),
)
EVERY = (*(name for name in COMMANDS if name != "store"), *(f"store {name}" for name in OF_STORES))
HELP = """
import sys
from impresslearn.cli import main
for command in sys.argv[1].split(","):
    sys.argv = ["impresslearn", *command.split(), "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, command
print(*sys.modules)
"""


def command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_help_lists_the_commands_in_under_half_a_second():
    # Processor time, not the clock: other programs on this machine are not the command's fault.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = command("-m", "impresslearn", "--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    listed = re.findall(r"^  (\w+)  ", result.stdout.partition("Commands:")[2], re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_help_of_every_command_loads_nothing_heavy():
    commands = ("", *COMMANDS, *(f"store {name}" for name in OF_STORES))
    result = command("-c", HELP, ",".join(commands))
    assert result.stdout.count("Usage: ") == len(commands)
    loaded = set(result.stdout.splitlines()[-1].split())
    assert not {"torch", "numpy", "numba", "altair", "rich"} & loaded


@pytest.mark.parametrize("name", EVERY)
def test_the_help_of_a_command_has_an_example_that_it_would_take_and_json(name):
    told = " ".join(CliRunner().invoke(app, [*name.split(), "--help"]).stdout.split())
    example = re.search(r"Example: impresslearn (.*?) (?:[A-Z][\w ]*(?: \(.*?\))?:|$)", told)
    assert example is not None
    assert example[1].startswith(name)
    assert " --json " in told or name == "serve"  # whose log is uvicorn's
    parsed = typer.main.get_command(app)
    words = shlex.split(example[1])
    while words and words[0] in getattr(parsed, "commands", ()):
        parsed = parsed.commands[words.pop(0)]
    parsed.make_context(name, words)  # raises for an option that is not there


def test_summaries_of_commands_are_whole():
    told = CliRunner().invoke(app, ["--help"]).stdout + CliRunner().invoke(app, ["store"]).stdout
    assert "..." not in told.replace("[ARGS]...", "")


def test_options_stand_in_groups_with_the_defaults_that_are_used():
    told = CliRunner().invoke(app, ["learn", "--help"]).stdout
    headings = [line for line in told.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == [
        *("Arguments:", "The tasks:", "Learning:", "How files are read:"),
        *("A new store (an existing one must agree):", "Options:"),
    ]
    shown = dict(re.findall(r"--([\w-]+) [^\[-]*?\[default: \(([\w.]+)\)", " ".join(told.split())))
    learner = ImpressLearner(create_backbone(in_features=4, num_classes=2))
    assert {name: shown[name] for name in ("backbone", "preset")} == {
        "backbone": DEFAULT_BACKBONE,
        "preset": DEFAULT_PRESET,
    }
    for name in ("sparsity", "granularity", "seed"):
        assert shown[name] == str(getattr(learner, name))
    told = " ".join(CliRunner().invoke(app, ["serve", "--help"]).stdout.split())
    shown = dict(re.findall(r"--(max-[\w-]+|threads) N [^\[]*\[default: \(([\w ]+)\)", told))
    limits = ServeSettings()
    assert int(shown["max-rows"]) == limits.max_rows
    assert int(shown["threads"]) == limits.threads


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["--version"], 0), (["nope"], 2), (["demo", "--seed", "x"], 2), (["demo", "--seed=-1"], 2)],
)
def test_exit_statuses(arguments, status):
    result = command("-m", "impresslearn", *arguments)
    assert result.returncode == status
    assert result.stdout.startswith("impresslearn ") if status == 0 else result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UnknownTaskError("no task\n 'x'"), 2, "error: no task 'x'\n"),
        (OSError(28, "No space left"), 2, "error: [Errno 28] No space left\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_one_line(monkeypatch, capsys, error, status, line):
    def raising(**_):
        raise error

    monkeypatch.setattr("impresslearn.cli.app.app", raising)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == status
    assert capsys.readouterr() == ("", line)


def test_waiting_threads_sleep_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr("impresslearn.cli.app.app", lambda **_: None)
    for given, used in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")):
        monkeypatch.setattr(os, "environ", dict(given))
        main()
        assert os.environ["OMP_WAIT_POLICY"] == used
