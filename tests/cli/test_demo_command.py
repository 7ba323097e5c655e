"""`impresslearn demo`: its files and its table."""

import json

import pytest
from typer.testing import CliRunner

import impresslearn as il
from impresslearn.cli import demo
from impresslearn.cli.app import app


def run_demo_command(*arguments):
    return CliRunner().invoke(app, ["demo", *map(str, arguments)])


def test_writes_a_page_and_prints_a_table(monkeypatch, tmp_path):
    rows = [
        {"task": "rotated-90", "role": "basis", "accuracy": 0.95, "bytes": 4200},
        {"task": "rotated-60", "role": "new", "accuracy": 0.94, "bytes": 301},
    ]
    results = {"seed": 7, "tasks": rows, "forgetting": 0.0, "task_inference_accuracy": 1.0}
    monkeypatch.setattr(demo, "run_demo", lambda store, seed: {**results, "seed": seed})
    out = tmp_path / "a" / "b"
    result = run_demo_command("--out", out, "--seed", 7)
    assert result.exit_code == 0, result.output
    assert json.loads((out / "results.json").read_text(encoding="utf-8")) == results
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "data:image/svg" in page
    assert "rotated-60</td>" in page
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["rotated-90", "basis", "95.0%", "4.2", "kB"] in lines
    assert lines[-1] == ["Report:", str(out / "report.html")]


def test_an_unwritable_folder_is_reported_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "run_demo", lambda *_, **__: pytest.fail("it began"))
    (tmp_path / "file").write_text("")
    assert run_demo_command("--out", tmp_path / "file").exit_code == 2
    assert isinstance(run_demo_command("--out", tmp_path / "file" / "demo").exception, OSError)


@pytest.mark.nightly
def test_the_real_demo(tmp_path):
    assert run_demo_command("--out", tmp_path).exit_code == 0
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert [row["role"] for row in results["tasks"]] == ["basis"] * 5 + ["new"] * 10
    assert (results["forgetting"], results["task_inference_accuracy"]) == (0, 1)
    for row in results["tasks"][5:]:
        assert row["accuracy"] > 0.85
        assert row["bytes"] < 400
    assert list(il.load(tmp_path / "demo.impress").tasks_) == [t["task"] for t in results["tasks"]]
