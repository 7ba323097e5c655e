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
from impresslearn.report.charts import charts_of


def made_up():
    """A demo's record of a basis task and two new ones."""
    rows = [
        {"method": f"ImpressLearn, {role} task", "task": task, "role": role, "accuracy": accuracy}
        | {"bytes": size, "supsup_accuracy": 0.95, "x_accuracy": None if role == "basis" else 0.25}
        for task, role, accuracy, size in (
            ("rotated-90", "basis", 0.95, 4200),
            ("rotated-30", "new", 0.92, 48),
            ("rotated-60", "new", 0.94, 48),
        )
    ]
    tasks = [row["task"] for row in rows]
    rows += [{"method": "SupSup", "task": t, "accuracy": 0.95, "bytes": 4200} for t in tasks]
    rows += [
        {"task": task, "mask": "rotated-90", "layer": layer, "coefficient": 0.0}
        for task in tasks[1:]
        for layer in ("fc1", "fc10", "fc2")
    ]
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
    assert calls == [{"seed": 7, "progress": True}]
    assert json.loads((out / "results.json").read_text(encoding="utf-8")) == made_up()
    assert (out / "report.html").stat().st_size > 500_000
    assert str(out / "report.html") in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["basis", "rotated-90", "95.0%", "95.0%", "–", "4.2", "kB"] in lines
    assert ["new", "rotated-60", "94.0%", "95.0%", "25.0%", "48", "B"] in lines


def test_its_record_is_drawn_like_every_other(calls, tmp_path):
    run_demo_command("--out", str(tmp_path))
    (record,) = read_records(tmp_path)
    assert "New-task accuracy 93.0% · SupSup 95.0%" in markdown_of(record)
    assert "Forgetting 0 points" in markdown_of(record)
    accuracy, cost, coefficients = (chart.to_dict() for chart in charts_of(record))
    bars = accuracy["layer"][0]["encoding"]
    assert bars["x"]["scale"]["domain"] == ["rotated-90", "rotated-30", "rotated-60"]
    ours = ["ImpressLearn, basis task", "ImpressLearn, new task"]
    assert bars["color"]["scale"]["domain"] == [*ours, "SupSup"]
    points = cost["datasets"][cost["data"]["name"]]
    assert {m["x"] for m in points if m["group"] == ours[1]} == {48}
    assert {m["x"] for m in points if m["group"] == "SupSup"} == {4200}
    assert coefficients["facet"]["column"]["sort"] == ["fc1", "fc10", "fc2"]
    scale = coefficients["spec"]["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert scale[0] < scale[-1]  # also where every coefficient is 0


def test_json_and_quiet(calls, tmp_path):
    result = run_demo_command("--out", str(tmp_path), "--json")
    assert json.loads(result.stdout) == made_up()
    assert run_demo_command("--out", str(tmp_path), "--quiet").output == ""
    assert [call["progress"] for call in calls] == [True, False]  # on standard error


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
