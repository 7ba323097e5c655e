"""What jobs make of the settings that targets write: banks, labels, whole streams, adapters."""

import numpy as np
import torch
from benchmarks.jobs import Job, JobContext, run_job
from benchmarks.targets.benchmarks import find_benchmark
from benchmarks.work.inputs import load_backbone, load_task
from benchmarks.work.learning import learn_stream

from toys import cifar_arrays

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
    counts = torch.bincount(torch.from_numpy(more.labels))
    assert sorted(set(counts.tolist())) == [2, 3]
    assert len(more) == 25
    assert torch.equal(more.inputs[:10], few.inputs)
    _, first, _ = load_task({**place, "labels": 10}, JobContext())
    _, whole, _ = load_task(place, JobContext())
    assert torch.equal(first.inputs, whole.inputs[:10])


def test_tasks_come_as_features_or_resized(tmp_path):
    stream = {"name": "split_cifar100", "subset": True, "tasks": 2, "augment": False}
    np.savez(tmp_path / "cifar100-subset.npz", **cifar_arrays(3))
    place = JobContext(str(tmp_path))
    spec = {"name": "resnet18", "num_classes": 5, "width": 2, "norm": "group", "head": "own"}
    settings = {"stream": stream, "task": 1, "backbone": spec, "labels": 10, "size": 40}
    resized = load_task(settings, place)
    assert resized.train.inputs.shape == (10, 3, 40, 40)
    featured = load_task({**settings, "featured": True}, place)
    assert load_task({**settings, "featured": True}, place).train is featured.train
    network = load_backbone(settings, place)
    for plain, features in zip(resized[1:], featured[1:], strict=True):
        assert list(features.labels) == list(plain.labels)
        expected = network.features({}, plain.inputs, mode="eval")
        torch.testing.assert_close(features.inputs.values, expected)


def test_a_stream_is_learned_and_looked_at_again():
    recipe = {"epochs": 0, "min_steps": 60, "lr": 0.03}
    settings = {
        **BENCHMARK.place(0, 0),
        "mask": {"allocation": "erdos_renyi", "rule": "magnitude", "recipe": recipe},
        "coefficients": {"recipe": recipe, "penalty": 0.0},
        "sparsity": 0.8,
        "granularity": "unit",
        "basis": 2,
        "tasks": 4,
        "seed": 0,
        "labels": None,
        "searches": [["exhaustive", 64, [0, 3]]],
    }
    rows = run_job(Job(learn_stream, settings), (), JobContext()).values["rows"]
    assert [row["role"] for row in rows] == ["basis", "basis", "learned", "learned"]
    assert all(row["identical"] and row["accuracy"] == row["accuracy_at_end"] for row in rows)
    assert min(row["accuracy"] for row in rows[:2]) > 0.9
    assert [row.get("found by exhaustive from 64") for row in rows] == [1.0, None, None, 1.0]
