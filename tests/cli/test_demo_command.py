"""`impresslearn demo`: its files and its table."""

import json

import pytest

import impresslearn as il
from toys import invoke, run


def test_an_unwritable_folder_is_reported_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr(il, "evaluate", lambda *_, **__: pytest.fail("it began"))
    (tmp_path / "file").write_text("")
    assert invoke("demo", "--out", tmp_path / "file").exit_code == 2
    assert isinstance(invoke("demo", "--out", tmp_path / "file" / "demo").exception, OSError)


@pytest.mark.nightly
def test_the_real_demo(tmp_path):
    lines = [line.split() for line in run("demo", "--out", tmp_path).splitlines()]
    assert lines[-1] == ["Report:", str(tmp_path / "report.html")]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "cdn." not in page  # it loads nothing
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert [row["phase"] for row in results["tasks"]] == ["basis"] * 5 + ["learned"] * 10
    assert (results["forgetting"], results["task_inference_accuracy"]) == (0, 1)
    for row in results["tasks"][5:]:
        assert [row["task"], "learned", f"{row['accuracy']:.1%}"] in [line[:3] for line in lines]
        assert f'"x": {row["bytes"]:.1f}' in page
        assert row["accuracy"] > 0.85
        assert row["bytes"] < 400
    assert list(il.load(tmp_path / "demo.impress").tasks_) == [t["task"] for t in results["tasks"]]
