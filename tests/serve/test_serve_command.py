"""`impresslearn serve`: its arguments, and what it says where something is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from impresslearn.cli.app import app
from impresslearn.errors import MissingDependencyError, StoreError
from impresslearn.serve import ServeSettings

NUMBERS = (
    *("max_bytes", "max_rows", "max_candidates", "max_tasks", "max_memory"),
    *("threads", "max_peer_connections"),
)


@pytest.fixture
def calls(monkeypatch):
    """What `run_server` was called with, the store aside."""
    made = []

    def note(store, settings, *, host, port, log_level):
        assert store == Path("tasks.store")
        made.append((settings, host, port, log_level))

    monkeypatch.setattr("impresslearn.serve.run_server", note)
    monkeypatch.delenv("IMPRESSLEARN_TOKEN", raising=False)
    return made


def run(*arguments, **environment):
    return CliRunner().invoke(app, ["serve", *arguments], env=environment)


def test_every_option_arrives_and_defaults_are_the_librarys(calls):
    numbers = {name: 5 + place for place, name in enumerate(NUMBERS)}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in numbers.items()]
    rest = "--host 127.0.0.2 --port 9 --token abc --log-level error --allow-host a --allow-host b"
    assert run("tasks.store").exit_code == 0
    assert run("tasks.store", *options, *rest.split(), IMPRESSLEARN_TOKEN="x").exit_code == 0
    assert run("tasks.store", IMPRESSLEARN_TOKEN="x").exit_code == 0
    given = ServeSettings(token="abc", hosts=("a", "b"), **numbers)
    assert calls == [
        (ServeSettings(), "127.0.0.1", 8000, "info"),
        (given, "127.0.0.2", 9, "error"),
        (ServeSettings(token="x"), "127.0.0.1", 8000, "info"),
    ]


@pytest.mark.parametrize("arguments", ["", "a --port 65536", "a --threads 0"])
def test_unusable_arguments_exit_with_2(calls, arguments):
    assert run(*arguments.split()).exit_code == 2
    assert calls == []


def test_a_store_or_a_level_that_is_none_is_one_line(tmp_path):
    result = run(str(tmp_path / "none"), "--port", "0")
    assert isinstance(result.exception, StoreError)
    result = run(str(tmp_path / "none"), "--log-level", "loud")
    assert "log_level must be one of critical, error" in str(result.exception)


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_a_missing_package_is_named(monkeypatch, missing):
    for module in [name for name in sys.modules if name.startswith("impresslearn.serve")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, missing, None)
    result = run("tasks.store")
    assert isinstance(result.exception, MissingDependencyError)
    assert "pip install 'impresslearn[serve]'" in str(result.exception)
