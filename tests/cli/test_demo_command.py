"""`impresslearn demo`: its files, its table and its JSON."""

import json
import subprocess
import sys
import types

import pytest
from typer.testing import CliRunner

from impresslearn.cli.app import app
from impresslearn.errors import InputError
from impresslearn.report.demo import Means, Task, check_demo_record

RECORD = {
    "tasks": [
        dict(zip(Task.model_fields, (name, role, 0.9, 0.95, None, 48), strict=True))
        for name, role in (("rotated-0", "basis"), ("rotated-30", "new"))
    ],
    "summary": dict.fromkeys(Means.model_fields, 0.5),
    "settings": {"seed": 0},
    "versions": {},
    "coefficients": {
        "masks": ["rotated-0"],
        "layers": ["fc1"],
        "tasks": ["rotated-30"],
        "values": [[[1.0]]],
    },
}


@pytest.fixture
def calls(monkeypatch):
    """The calls of a `run_demo` that returns a made-up record at once."""
    made = []
    module = types.ModuleType("impresslearn.experiments.demo")
    module.run_demo = lambda **settings: made.append(settings) or RECORD
    monkeypatch.setitem(sys.modules, "impresslearn.experiments", types.ModuleType("experiments"))
    monkeypatch.setitem(sys.modules, "impresslearn.experiments.demo", module)
    return made


def run_demo_command(*arguments):
    return CliRunner().invoke(app, ["demo", *arguments])


def test_writes_both_files_and_prints_the_table(calls, tmp_path):
    out = tmp_path / "a" / "b"
    result = run_demo_command("--out", str(out), "--seed", "7")
    assert result.exit_code == 0
    assert calls == [{"seed": 7, "progress": True}]
    assert json.loads((out / "results.json").read_text(encoding="utf-8")) == RECORD
    assert (out / "report.html").stat().st_size > 500_000
    assert "rotated-30" in result.stdout
    assert str(out / "report.html") in result.stdout


def test_json_is_all_of_stdout(calls, tmp_path):
    result = run_demo_command("--out", str(tmp_path), "--json")
    assert json.loads(result.stdout) == RECORD
    assert calls == [{"seed": 0, "progress": True}]  # on standard error


def test_quiet_prints_nothing(calls, tmp_path):
    assert run_demo_command("--out", str(tmp_path), "--quiet").output == ""
    assert calls == [{"seed": 0, "progress": False}]


def test_an_unwritable_directory_is_told_before_the_work(calls, tmp_path):
    (tmp_path / "file").write_text("")
    result = run_demo_command("--out", str(tmp_path / "file"))
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"cannot write to {tmp_path / 'file'}: ")
    assert calls == []


def test_the_real_demo(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "impresslearn", "demo", "--out", str(tmp_path), "--json"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert json.loads(result.stdout) == record
    check_demo_record(record)
    assert [task["role"] for task in record["tasks"]] == ["basis"] * 5 + ["new"] * 10
    assert record["summary"]["forgetting"] == 0
    assert record["summary"]["new_task_accuracy"] > record["summary"]["single_mask_accuracy"]
    assert record["summary"]["bytes_per_new_task"] < record["summary"]["bytes_per_supsup_mask"]
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(task["name"] in report for task in record["tasks"])
