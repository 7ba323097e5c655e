"""`impresslearn reproduce` as it is typed: lists, estimates, errors."""

from __future__ import annotations

import json
import sys

import pytest
from commands import REAL, marks, outcomes, run
from odd_targets import target_of
from typer.testing import CliRunner

from impresslearn.cli.app import app
from impresslearn.errors import (
    ImpressLearnError,
    InputError,
    MissingDataError,
    MissingDependencyError,
)
from impresslearn.experiments import estimate, targets
from impresslearn.experiments.executors import Workers
from impresslearn.experiments.jobs import Place
from impresslearn.experiments.reproduce import Run, reproduce
from impresslearn.experiments.targets.catalogue import target_names
from impresslearn.experiments.targets.plan import Plan, Target
from impresslearn.report import read_records, write_figures, write_report
from impresslearn.report.rows import unfolded


def typed(*arguments: object) -> str:
    """What a command prints; its error is raised."""
    found = CliRunner().invoke(app, ["reproduce", *map(str, arguments)], catch_exceptions=False)
    assert found.exit_code == 0
    return found.stdout


def test_an_estimate_needs_no_data_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "_timed", lambda *_: 0.01)
    monkeypatch.chdir(tmp_path)
    arguments = ("all", "--scale", "small", "--dry-run", "--json", "--data", "nowhere")
    found = json.loads(typed(*arguments))
    assert tuple(found) == target_names()
    assert all(0 <= entry["minutes"] < 1e9 for entry in found.values())
    assert found["rotated-mnist"]["jobs"]["mask"] > 0
    monkeypatch.setattr(estimate, "_timed", lambda *_: 10)
    one = typed("overlap", "--dry-run", "--processes", 2)
    assert one == "overlap          about 140 minutes; jobs to run: 20 mask, 2 overlap\n"
    assert " days; jobs" in typed("rotated-mnist", "--scale", "paper", "--dry-run")
    assert not list(tmp_path.iterdir())


def test_missing_data_are_told_before_the_work_and_all_goes_on_without(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingDataError, match=r"no data.cifar100-subset.npz"):
        typed("pretrained")
    monkeypatch.setattr(
        targets, "list_targets", lambda: tuple(map(targets.find_target, ("parameters", "clinc150")))
    )
    found = CliRunner().invoke(app, ["reproduce", "all", "--json"])
    assert [record["target"] for record in json.loads(found.stdout)] == ["parameters"]
    assert "clinc150 is left out: no data/clinc150" in found.stderr
    assert str(found.exception) == "data are missing of clinc150"
    told = CliRunner().invoke(app, ["reproduce", "clinc150", "--dry-run"])
    assert told.exit_code == 0
    assert "clinc150 cannot be run: no data/clinc150" in told.stderr


def test_a_step_is_really_timed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = typed("overlap", "--scale", "smoke", "--dry-run")
    assert line.startswith("overlap          about 0")
    assert line.endswith("minutes; jobs to run: 20 mask, 2 overlap\n")
    images = json.loads(typed("split-cifar100", "--scale", "small", "--dry-run", "--json"))
    assert 0.5 < images["split-cifar100"]["minutes"] < 5000


def test_the_list():
    listed = json.loads(typed("--list", "--json"))
    assert tuple(entry["name"] for entry in listed) == target_names()
    assert all(set(entry) == {"name", "title", "claim", "expects", "cost"} for entry in listed)
    text = typed("--list")
    assert all(name in text for name in target_names())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a target, or all; --list shows them"),
        (("mnist",), "got 'mnist'; did you mean 'rotated-mnist' or "),
        (("overlap", "--scale", "big"), "scale must be one of smoke, small, paper, "),
        (("all", "--scale", "", "--dry-run"), "scale must be one of"),
        (("overlap", "--executor", "slurm"), "executor must be local or ray, got"),
        (("overlap", "--device", "toaster"), "device 'toaster' cannot be used"),
    ],
)
def test_what_cannot_be_used_gives_one_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        typed(*arguments)
    assert not list(tmp_path.iterdir())


def test_data_that_are_not_there_give_one_line(tmp_path):
    for target in ("overlap", "split-cifar100", "split-imagenet"):
        with pytest.raises(ImpressLearnError, match="nowhere") as caught:
            typed(
                target, "--scale", "small", "--data", tmp_path / "nowhere", "--out",
                tmp_path / "out", "--processes", 1,
            )  # fmt: skip
        assert isinstance(caught.value, (FileNotFoundError, InputError))


def test_parameters_need_no_jobs_but_a_folder(tmp_path):
    printed = json.loads(typed("parameters", "--out", tmp_path, "--json"))
    assert printed == json.loads((tmp_path / "parameters.json").read_text())
    assert len(printed["rows"]) == 4
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match=r"cannot write to .*out: "):
        typed("parameters", "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("undefined", r"^odd job \w{8} \(method undefined\): its accuracy mu"),
        ("unreadable", r"^odd job .*No such file or directory: .*none/images"),
        ("missing", "MNIST is not in"),
    ],
)
def test_a_job_that_cannot_be_done_is_named_and_the_rest_kept(tmp_path, name, says):
    run, target = Run("smoke", Place(str(tmp_path)), tmp_path), target_of(name)
    with pytest.raises(ImpressLearnError, match=says):
        reproduce(target, run, Workers(1))
    assert outcomes(tmp_path / "cache") == len(marks(tmp_path)) >= 4
    assert not (tmp_path / f"{name}.json").exists()
    (tmp_path / "repaired").touch()
    reproduce(target, run, Workers(1))
    assert sorted(marks(tmp_path)) == list(range(8)), "each job ran once"


def test_a_derived_number_that_is_not_defined_is_null(tmp_path):
    plan = Plan((), "", {}, (0,), finish=lambda _: [{"p_value": float("nan"), "masks": 3}])
    target = Target("odd", "", "", "", "", lambda _: plan)
    reproduce(target, Run("smoke", Place(), tmp_path), Workers(1))
    written = json.loads((tmp_path / "odd.json").read_text())
    assert written["rows"] == [{"p_value": None, "masks": 3}]


def test_without_ray_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'impresslearn\[ray\]'"):
        Run("smoke", Place(), tmp_path, executor="ray").open_executor()


@pytest.mark.slow
def test_json_is_all_that_is_printed(tmp_path):
    status, out, err = run("tiny", "--out", tmp_path, "--processes", 2, "--json")
    assert (status, err) == (0, "")
    written = json.loads((tmp_path / "tiny.json").read_text())
    assert json.loads(out) == written | {"rows": list(unfolded(written["rows"]))}
    assert run("tiny", "--out", tmp_path, "--quiet") == (0, "", "")


def smoke(target, data, out):
    arguments = (target, "--scale", "smoke", "--data", data, "--out", out)
    return run(*arguments, program=REAL, patience=1800)


def check_shown(tmp_path, targets):
    records = read_records(tmp_path)
    assert sorted(record.target for record in records) == sorted(targets)
    write_report(records, tmp_path / "report.html")
    drawn = write_figures(records, tmp_path / "figures", "svg")
    assert len(drawn) >= sum(len(record.figures) for record in records)


@pytest.mark.slow
def test_every_target_at_scale_smoke_but_those_whose_data_are_missing(tmp_path):
    status, _, err = smoke("all", tmp_path / "nothing", tmp_path)
    assert status != 0
    assert "clinc150 is left out: no " in err
    assert "clinc150/data_full.json: expected the folder of CLINC150" in err
    assert "pretrained is left out: no " in err
    assert err.splitlines()[-1].endswith("data are missing of clinc150, pretrained")
    check_shown(tmp_path, set(target_names()) - {"clinc150", "pretrained"})


@pytest.mark.slow
def test_a_trained_network_at_scale_smoke(tmp_path, cifar100_root, resnet20_root):
    assert smoke("pretrained", resnet20_root, tmp_path)[0] == 0
    check_shown(tmp_path, ["pretrained"])


@pytest.mark.slow
def test_text_at_scale_smoke(tmp_path, clinc150_root):
    assert smoke("clinc150", clinc150_root.parent, tmp_path)[0] == 0
    check_shown(tmp_path, ["clinc150"])
