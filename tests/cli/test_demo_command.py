"""`impresslearn demo`: its files, its tables and its JSON."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import impresslearn
from impresslearn.cli.app import app
from impresslearn.errors import InputError
from impresslearn.experiments import demo as experiment
from impresslearn.report import markdown_of, read_records


def made_up():
    """A demo's record of a basis task and a new one."""
    rows = [
        {"method": f"ImpressLearn, {role} task", "task": task, "role": role, "accuracy": accuracy}
        | {"bytes": size, "supsup_accuracy": 0.95, "x_accuracy": foreign}
        for task, role, accuracy, size, foreign in (
            ("rotated-90", "basis", 0.95, 4200, None),
            ("rotated-60", "new", 0.94, 48, 0.25),
        )
    ]
    rows += [
        {"method": "SupSup", "task": row["task"], "accuracy": 0.95, "bytes": 1} for row in rows
    ]
    rows += [{"task": "rotated-60", "mask": "rotated-90", "layer": "fc1", "coefficient": 0.0}]
    rows.append({"forgetting": 0.0, "task_inference_accuracy": 1.0, "seconds": 12.3})
    shown = json.loads(Path(experiment.__file__).with_name("demo.json").read_text("utf-8"))
    words = {"target": "results", "scale": "demo", "title": "Digits", "claim": "", "data": "digits"}
    plain = {"settings": {}, "versions": {}, "hardware": {}, "seeds": [0], "format": 1}
    return {**words, **plain, "seconds": 12.3, "job_seconds": 12.3, **shown, "rows": rows}


@pytest.fixture
def calls(monkeypatch):
    """The calls of a `run_demo` that returns a made-up record at once."""
    made = []
    monkeypatch.setattr(experiment, "run_demo", lambda **given: made.append(given) or made_up())
    return made


def run_demo_command(*arguments):
    return CliRunner().invoke(app, ["demo", *arguments])


def test_writes_both_files_and_prints_the_tables(calls, tmp_path):
    out = tmp_path / "a" / "b"
    result = run_demo_command("--out", str(out), "--seed", "7")
    assert result.exit_code == 0
    assert json.loads((out / "results.json").read_text(encoding="utf-8")) == made_up()
    assert (out / "report.html").stat().st_size > 500_000
    assert str(out / "report.html") in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["basis", "rotated-90", "95.0%", "95.0%", "–", "4.2", "kB"] in lines
    assert ["new", "rotated-60", "94.0%", "95.0%", "25.0%", "48", "B"] in lines
    (record,) = read_records(out)
    assert "New-task accuracy 94.0% · SupSup 95.0%" in markdown_of(record)
    told = run_demo_command("--out", str(out), "--json")
    assert json.loads(told.stdout) == made_up()
    assert run_demo_command("--out", str(out), "--quiet").output == ""
    shown = ((7, True), (0, True), (0, False))  # progress is on standard error
    assert calls == [{"seed": seed, "progress": progress} for seed, progress in shown]


def test_an_unwritable_directory_is_told_before_the_work(calls, tmp_path):
    (tmp_path / "file").write_text("")
    result = run_demo_command("--out", str(tmp_path / "file"))
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"cannot write to {tmp_path / 'file'}: ")
    assert calls == []


@pytest.mark.slow
def test_the_real_demo(tmp_path):
    result = run_demo_command("--out", str(tmp_path), "--json")
    assert result.exit_code == 0, result.output
    (record,) = read_records(tmp_path)
    assert json.loads(result.stdout)["versions"]["impresslearn"] == impresslearn.__version__
    roles = [row["role"] for row in record.rows if "role" in row]
    assert roles == ["basis"] * 5 + ["new"] * 10
    summary = record.rows[-1]
    assert (summary["forgetting"], summary["task_inference_accuracy"]) == (0, 1)
    for row in record.rows:
        if row.get("role") == "new":
            assert 0.85 < row["accuracy"] <= row["supsup_accuracy"] + 0.02
            assert row["x_accuracy"] < row["accuracy"]
            assert row["bytes"] < 400
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(row["task"] in page for row in record.rows if "role" in row)
