"""What jobs make of the settings that targets write, and what their rows hold."""

import numpy as np
import pytest
import torch
from benchmarks.jobs import Job, JobContext, run_job
from benchmarks.targets import find_target
from benchmarks.targets.benchmarks import find_benchmark
from benchmarks.work.inputs import load_backbone, load_task
from benchmarks.work.learning import learn_stream

import impresslearn as il
from impresslearn.networks.architectures import resnet20
from toys import cifar_arrays

WIDTH = 2


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A narrow ResNet-20 in a file, and a subset of CIFAR-100 whose classes are grey levels."""
    folder = tmp_path_factory.mktemp("data")
    state = resnet20(10, width=WIDTH).state_dict()
    np.savez(
        folder / "resnet20-cifar10.npz",
        **{name: each.numpy() + 0.01 for name, each in state.items() if each.ndim},
    )
    np.savez(folder / "cifar100-subset.npz", **cifar_arrays(6))
    return JobContext(str(folder))


def narrow(job):
    return {**job.settings, "backbone": {**job.settings["backbone"], "width": WIDTH}}


def planned(method):
    plan = find_target("pretrained").plan("smoke").planned
    return next(each for each in plan if each.columns["method"] == method)


@pytest.mark.slow
def test_the_first_rows_are_those_of_the_preset(place):
    first = find_target("pretrained").plan("smoke").planned[0]
    settings = narrow(first.job)
    settings["learner"] |= {"granularity": "layer"}  # of which 40 masks are enough work here
    _, found = run_job(Job(first.job.function, settings), (), place)
    recipe = il.Recipe(**settings["recipe"])
    learner = il.ImpressLearner.from_preset(
        load_backbone(settings, place), "pretrained", task_recipe=recipe, granularity="layer"
    )
    name, train, test = load_task(settings, place)
    learner.learn_task(name, train)
    assert found.values["accuracy"] == learner.score(test, name)
    kept = learner.tasks_[name]
    assert found.values["bytes_per_task"] == kept.bytes
    assert found.values["prediction_bytes"] == kept.bytes - kept.breakdown["profile"] < kept.bytes
    assert first.rows(found.values)[0]["seconds"] > 0


@pytest.mark.parametrize("name", ["frontier", "pretrained", "image-network", "sentences"])
def test_settings_are_chosen_on_other_examples_than_they_are_judged_by(name):
    settings = {"development": [], "evaluation": []}
    for each in find_target(name).plan("small").planned:
        settings[each.columns["role"]].append(each.job.settings)
    tried, judged = settings.values()
    assert not any(each.get("validation") for each in judged)
    if not all(each.get("validation") for each in tried):
        last = max(max(each["tasks"]) for each in tried)
        assert last < min(min(each["tasks"]) for each in judged)


def test_budgets_are_checked_row_by_row():
    plan = find_target("image-network").plan("small")
    ours = [each for each in plan.planned if "budget" in each.columns]
    for each in ours:
        assert each.job.settings["learner"]["max_bytes"] == each.columns["budget"]
    rows = [{"budget": 300, "bytes_per_task": 300}, {"budget": 300, "bytes_per_task": 301}, {}]
    assert [row.get("fits") for row in plan.finish(rows)] == [1.0, 0.0, None]


@pytest.mark.parametrize(
    ("method", "floats"),
    [("fine-tuning", 1000), ("BitFit", 300), ("linear probe", 5 * (4 * WIDTH + 1))],
)
def test_others_are_learned_by_name(place, method, floats):
    job = planned(method).job
    _, outcome = run_job(Job(job.function, narrow(job)), (), place)
    values = outcome.values
    assert values["task"] == "cifar100-06"
    assert 4 * floats <= values["bytes_per_task"] < 40 * floats
    assert values["prediction_bytes"] == values["bytes_per_task"]  # nothing to be recognised by
    assert 0 <= values["accuracy"] <= 1


BENCHMARK = find_benchmark("permuted-mnist", "smoke")


def test_networks_of_jobs_are_those_of_the_records():
    """Records and caches were made before networks had another draw; a job may ask for that one."""
    spec = BENCHMARK.place(0, 0)["backbone"]
    for version, settings in ((1, {}), (2, {"init_version": 2})):
        backbone = load_backbone({"backbone": spec | settings}, JobContext())
        assert backbone.spec["init_version"] == version


def test_few_labels_hold_every_class():
    place = BENCHMARK.place(0, 0)
    _, few, _ = load_task({**place, "labels": 10, "balanced": True}, JobContext())
    assert sorted(few.labels) == list(range(10))
    _, more, _ = load_task({**place, "labels": 25, "balanced": True}, JobContext())
    assert sorted(np.bincount(more.labels)) == [2] * 5 + [3] * 5
    assert torch.equal(more.inputs[:10], few.inputs)
    _, first, _ = load_task({**place, "labels": 10}, JobContext())
    _, whole, _ = load_task(place, JobContext())
    assert torch.equal(first.inputs, whole.inputs[:10])


def test_a_stream_is_learned_and_looked_at_again():
    (long,) = find_target("forgetting").plan("smoke").planned
    short = {"basis": 2, "tasks": 4, "searches": [["exhaustive", 64, [0, 3]]]}
    _, outcome = run_job(Job(learn_stream, long.job.settings | short), (), JobContext())
    rows = outcome.values["rows"]
    assert [row["role"] for row in rows] == ["basis", "basis", "learned", "learned"]
    assert all(row["identical"] and row["accuracy"] == row["accuracy_at_end"] for row in rows)
    assert min(row["accuracy"] for row in rows[:2]) > 0.9
    assert [row.get("found by exhaustive from 64") for row in rows] == [1.0, None, None, 1.0]
