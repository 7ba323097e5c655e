"""What every command shares: start-up time, one-line errors, exit statuses; and `env`."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
import torch
import typer
from typer.testing import CliRunner

from impresslearn.cli import main
from impresslearn.cli.app import PACKAGES, app
from impresslearn.cli.arguments import option_field, option_groups
from impresslearn.errors import UnknownTaskError

COMMANDS = (
    *("demo", "learn", "predict", "infer", "store", "serve", "run", "reproduce", "report"),
    *("bench", "env"),
)
OF_STORES = ("ls", "show", "verify", "export", "import", "compact", "rm")
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
    times = []
    for _ in range(3):
        start = time.perf_counter()
        result = command("-m", "impresslearn", "--help")
        times.append(time.perf_counter() - start)
    listed = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ")]
    assert sorted(listed[-len(COMMANDS) :]) == sorted(COMMANDS)
    assert min(times) < 0.5


def test_help_of_every_command_loads_nothing_heavy():
    commands = ("", *COMMANDS, *(f"store {name}" for name in OF_STORES))
    result = command("-c", HELP, ",".join(commands))
    assert result.stdout.count("Usage: ") == len(commands)
    loaded = set(result.stdout.splitlines()[-1].split())
    assert not {"torch", "numpy", "numba", "altair", "rich"} & loaded


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


@pytest.mark.parametrize(("given", "used"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_waiting_threads_sleep_unless_told_otherwise(monkeypatch, given, used):
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr("impresslearn.cli.app.app", lambda **_: None)
    main()
    assert os.environ["OMP_WAIT_POLICY"] == used


@dataclass(frozen=True)
class Group:
    size: int | None = option_field("N", "A size.", min=1)
    names: list[str] | None = option_field("NAME", "Names.", "--name")
    quick: bool = option_field(None, "Quick.", "--quick", default=False)


def test_a_group_of_options_is_one_argument_of_a_command():
    given = []

    @option_groups
    def command(first: str, group: Group, last: int = 3) -> None:
        """Does nothing."""
        given.append((first, group, last))

    app = typer.Typer()
    app.command()(command)
    runner = CliRunner()
    assert runner.invoke(app, ["a"]).exit_code == 0
    assert runner.invoke(app, ["b", "--size=2", "--name=x", "--name=y", "--quick"]).exit_code == 0
    assert given == [("a", Group(), 3), ("b", Group(2, ["x", "y"], True), 3)]
    assert runner.invoke(app, ["c", "--size=0"]).exit_code == 2


def test_env_tells_what_is_there(monkeypatch):
    told = CliRunner().invoke(app, ["env", "--json"]).stdout
    facts = json.loads(told)
    assert set(PACKAGES) <= set(facts)
    assert facts["threads"] == torch.get_num_threads()
    assert len(facts["cuda_devices"]) == torch.cuda.device_count()
    lines = CliRunner().invoke(app, ["env"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(facts)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("impresslearn.cli.app.PACKAGES", ("torch", "no-such-package"))
    for arguments in ([], ["--json"]):
        result = CliRunner().invoke(app, ["env", *arguments])
        assert result.exit_code == 0
        assert "no-such-package" in result.stdout
        assert "torch_error" in result.stdout
