"""Is anything forgotten? Streams learned in one learner, and every early task looked at again.

The same learner then finds the tasks of unlabelled inputs, among masks and among tasks that are
mixtures of masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from impresslearn.experiments.jobs import Job
from impresslearn.experiments.targets.benchmarks import (
    Benchmark,
    described,
    permuted_mnist,
    split_cifar100,
)
from impresslearn.experiments.targets.plan import Plan, Planned, Row, Target
from impresslearn.experiments.work.streams import learn_stream

NORMS = ("batch", "per_task", "shared", "group")
SEARCHES = (("halving", 128), ("halving", 8), ("halving", 1), ("one_shot", 128))
ALPHA_INPUTS = {"smoke": 128, "small": 2000, "paper": 2000}
LABELS = 5000
IMAGE_EPOCHS = 10


def plan(scale: str) -> Plan:
    """A long stream on LeNet, and a short one under each norm policy of a ResNet."""
    benchmarks = [permuted_mnist(scale), split_cifar100(scale)]
    table = {
        "title": "Tasks whose logits are the same bits at the end of the stream (share)",
        "columns": ["benchmark", "norm", "role"],
        "values": ["identical", "accuracy", "accuracy_at_end"],
    }
    searches = {
        "title": "Tasks found from unlabelled inputs among all of the stream (share)",
        "columns": ["benchmark", "search", "role"],
        "values": ["found"],
    }
    figure = {
        "kind": "bar",
        "title": f"{benchmarks[0].name}: tasks found among all, by method and inputs",
        "x": "search",
        "y": "found",
        "group": "role",
        "x_label": "method and number of inputs",
        "y_label": "share of tasks found",
    }
    settings, data = described(benchmarks)
    return Plan(
        list(_planned(benchmarks, scale)),
        data,
        settings,
        benchmarks[0].seeds[:1],
        [figure],
        [table, searches],
        by_task,
    )


def by_task(rows: list[Row]) -> list[Row]:
    """One row a task of each stream, and one for each task that was searched for."""
    tasks = [
        {**{key: value for key, value in row.items() if key != "rows"}, **task}
        for row in rows
        for task in row["rows"]
    ]
    for task in tasks:
        task["identical"] = float(task["identical"])
    searched = [
        {
            "method": "search",
            "benchmark": task["benchmark"],
            "seed": task["seed"],
            "task": task["task"],
            "role": task["role"],
            "search": key.removeprefix("found by ").replace(" from ", ", "),
            "found": value,
        }
        for task in tasks
        for key, value in task.items()
        if key.startswith("found by ")
    ]
    return tasks + searched


def _searches(scale: str, basis: int, tasks: int) -> list[list]:
    """[method, inputs, positions]: all tasks by the quick methods, ten by α-optimisation."""
    everywhere = list(range(tasks))
    some = [*range(5), *range(basis, basis + 5)]
    quick = [[method, inputs, everywhere] for method, inputs in SEARCHES]
    return [*quick, ["alpha", ALPHA_INPUTS[scale], some]]


def _planned(benchmarks: list[Benchmark], scale: str) -> Iterator[Planned]:
    long, images = benchmarks
    basis, tasks = (5, 14) if scale == "smoke" else (20, 60)
    searches = _searches(scale, basis, tasks)
    labels = None if scale == "smoke" else LABELS
    yield _stream(long, "none", basis, tasks, searches, labels)
    if scale == "smoke":
        return
    mask = {**images.mask, "recipe": {**images.mask["recipe"], "epochs": IMAGE_EPOCHS}}
    own = {**images.task, "recipe": {**images.task["recipe"], "epochs": IMAGE_EPOCHS}}
    short = replace(images, mask=mask, task=own)
    for norm in NORMS:
        yield _stream(
            replace(short, backbone={**short.backbone, "norm": norm}), norm, 2, 5, [], None, 0.8
        )


def _stream(
    benchmark: Benchmark,
    norm: str,
    basis: int,
    tasks: int,
    searches: list[list],
    labels: int | None,
    sparsity: float = 0.9,
) -> Planned:
    seed = benchmark.seeds[0]
    settings = {
        "stream": benchmark.stream_of(seed),
        "backbone": benchmark.network(seed),
        "mask": dict(benchmark.mask),
        "coefficients": dict(benchmark.task),
        "sparsity": sparsity,
        "granularity": "unit",
        "basis": basis,
        "tasks": tasks,
        "seed": 0,
        "labels": labels,
        "searches": searches,
    }
    columns = {
        "method": "ImpressLearn", "benchmark": benchmark.name, "norm": norm, "seed": seed
    }  # fmt: skip
    return Planned(Job(learn_stream, settings), columns, ("rows",))


TARGET = Target(
    name="forgetting",
    title="Forgetting, and finding the task among many",
    claim="Accuracy on learned tasks is retained; inference works on a mixture of basis masks and "
    "of mixtures learned for later tasks.",
    expects="all logits bit-identical under every norm policy; nearly every task found by halving, "
    "also among mixtures",
    cost="about 6 minutes",
    plan=plan,
)
