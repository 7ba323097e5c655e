"""`impresslearn demo`: its files, its table and its JSON."""

import json

import pytest
from typer.testing import CliRunner

import impresslearn as il
from impresslearn.cli import demo
from impresslearn.cli.app import app
from impresslearn.errors import InputError


def run_demo_command(*arguments):
    return CliRunner().invoke(app, ["demo", *map(str, arguments)])


@pytest.mark.parametrize("shown", [(), ("--json",), ("--quiet",)])
def test_writes_a_page_and_prints_what_was_asked_for(shown, monkeypatch, tmp_path):
    rows = [("rotated-90", "basis", 0.95, 4200), ("rotated-60", "new", 0.94, 301)]
    results = {
        "seed": 7,
        "tasks": [dict(zip(demo.COLUMNS, row, strict=True)) for row in rows],
        "forgetting": 0.0,
        "task_inference_accuracy": 1.0,
    }
    monkeypatch.setattr(demo, "run_demo", lambda store, seed, progress: {**results, "seed": seed})
    out = tmp_path / "a" / "b"
    result = run_demo_command("--out", out, "--seed", 7, *shown)
    assert result.exit_code == 0, result.output
    assert json.loads((out / "results.json").read_text(encoding="utf-8")) == results
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "<td>rotated-60<td>new<td>94.0%<td>301" in page
    if shown == ("--json",):
        assert json.loads(result.stdout) == results
    elif shown == ("--quiet",):
        assert result.output == ""
    else:
        lines = [line.split() for line in result.stdout.splitlines()]
        assert ["rotated-90", "basis", "95.0%", "4,200"] in lines
        assert lines[-1] == ["Report:", str(out / "report.html")]


def test_an_unwritable_folder_is_reported_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "run_demo", lambda *_, **__: pytest.fail("it began"))
    (tmp_path / "file").write_text("")
    result = run_demo_command("--out", tmp_path / "file")
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"cannot write to {tmp_path / 'file'}: ")


@pytest.mark.nightly
def test_the_real_demo(tmp_path):
    results = json.loads(run_demo_command("--out", tmp_path, "--json").stdout)
    assert [row["role"] for row in results["tasks"]] == ["basis"] * 5 + ["new"] * 10
    assert (results["forgetting"], results["task_inference_accuracy"]) == (0, 1)
    for row in results["tasks"][5:]:
        assert row["accuracy"] > 0.85
        assert row["bytes"] < 400
    assert list(il.load(tmp_path / "demo.impress").tasks_) == [t["task"] for t in results["tasks"]]
