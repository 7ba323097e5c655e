"""What every command shares: start-up time, one-line errors, exit statuses."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from impresslearn.cli import main
from impresslearn.cli.arguments import option_field, option_groups
from impresslearn.errors import UnknownTaskError


def command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "impresslearn", *arguments], capture_output=True, text=True
    )


def test_help_lists_the_commands_in_under_half_a_second():
    times = []
    for _ in range(5):
        start = time.perf_counter()
        result = command("--help")
        times.append(time.perf_counter() - start)
    assert result.returncode == 0
    assert {"demo", "env"} <= {line.split()[0] for line in result.stdout.splitlines() if line}
    assert min(times) < 0.5


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from impresslearn.cli import main\n"
        "sys.argv = ['impresslearn', '--help']\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded = result.stdout.splitlines()[-1].split()
    assert "typer" in loaded
    assert not {"torch", "numpy", "numba", "altair", "rich"} & set(loaded)


def test_version():
    result = command("--version")
    assert result.returncode == 0
    assert result.stdout.startswith("impresslearn ")


@pytest.mark.parametrize("arguments", [["nope"], ["demo", "--seed", "x"], ["demo", "--seed", "-1"]])
def test_unusable_arguments_exit_with_2(arguments):
    result = command(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr


def raising(error):
    def app(**_):
        raise error

    return app


def test_an_error_of_the_library_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("impresslearn.cli.app.app", raising(UnknownTaskError("no task\n 'x'")))
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr() == ("", "error: no task 'x'\n")


@pytest.mark.parametrize(("given", "used"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_waiting_threads_sleep_unless_told_otherwise(monkeypatch, given, used):
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr("impresslearn.cli.app.app", lambda **_: None)
    main()
    assert os.environ["OMP_WAIT_POLICY"] == used


def test_an_interrupt_leaves_quietly(monkeypatch, capsys):
    monkeypatch.setattr("impresslearn.cli.app.app", raising(KeyboardInterrupt()))
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
    assert capsys.readouterr() == ("", "")


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
