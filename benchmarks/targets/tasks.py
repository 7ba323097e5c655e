"""The jobs of targets about tasks: few labels, their order, and what later ones change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pandas as pd
from scipy.stats import ttest_ind

from benchmarks.jobs import Job
from benchmarks.rivals.incremental import INCREMENTAL
from benchmarks.targets.benchmarks import Benchmark, find_benchmark
from benchmarks.targets.plan import Planned, Row, table_of
from benchmarks.work.incremental import tasks_of_single_inputs
from benchmarks.work.inference import tell_tasks
from benchmarks.work.learning import learn_stream
from impresslearn.streams.draws import draw_angles

BASIS, UNSEEN = 10, 10
LABELS = {
    "smoke": (20, 50, 200),
    "small": (10, 50, 200, 1000, 10000),
    "paper": (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000),
}
ORDERS = (0, 1)
# At scale small: a second order needs other masks, and a mask on images takes a minute.
MOST_MASKS = {"permuted-mnist": 30, "rotated-mnist": 20, "split-cifar100": 5}
NORMS = ("batch", "per_task", "shared", "group")
SEARCHES = (("exhaustive", 128), ("exhaustive", 8), ("exhaustive", 1), ("one_shot", 128))
STREAM_LABELS = 5000
IMAGE_EPOCHS = 10
FOUND = "found by "


def spread_rotations(name: str, scale: str) -> Benchmark:
    """Rotated MNIST with basis angles evenly around the circle, and better trained masks.

    The unseen angles are drawn.
    """
    benchmark = find_benchmark(name, scale)
    spread = list(range(0, 360, 360 // BASIS))
    drawn = [angle for angle in draw_angles(360, 0, None) if angle not in spread][:UNSEEN]
    longer = {} if scale == "smoke" else {"epochs": 5}
    return replace(
        benchmark,
        stream={"name": benchmark.stream["name"], "angles": spread + drawn},
        mask={**benchmark.mask, "recipe": {**benchmark.mask["recipe"], **longer}},
        basis=BASIS,
        unseen=UNSEEN,
        sparsities=(0.9,),
        seeds=benchmark.seeds[:1],
    )


def few_labels(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Accuracy against labelled examples a task, which are spread evenly over the classes."""
    for seed, sparsity in product(benchmark.seeds, benchmark.sparsities):
        masks = benchmark.heterogeneous(seed, BASIS, sparsity)
        random = benchmark.independent(2 * BASIS, sparsity, seed)
        unit = {"granularity": "unit"}
        ways: dict[str, tuple[tuple[Job, ...], dict[str, Any]]] = {
            "trained bank, a coefficient per layer": (masks, {}),
            "trained bank, a coefficient per unit": (masks, unit),
            "random bank, a coefficient per unit": ((), {**unit, "random": random}),
        }
        for task, count in product(benchmark.unseen_tasks(), LABELS[scale]):
            columns = {"seed": seed, "sparsity": sparsity, "labels": count}
            few: dict[str, Any] = {"labels": count, "balanced": True}
            for method, (needs, more) in ways.items():
                job = benchmark.task_job(seed, task, needs, **few, **more)
                yield Planned(job, {"method": method, **columns})
            dedicated = benchmark.mask_job(seed, task, sparsity, **few)
            yield Planned(dedicated, {"method": "supsup", **columns})


def task_order(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Unseen tasks under two orders of the stream, on the network of the first seed."""
    seed = benchmark.seeds[0]
    most = MOST_MASKS[benchmark.name] if scale == "small" else max(benchmark.counts)
    counts = [count for count in benchmark.counts if count <= most]
    for sparsity, count, order in product(benchmark.sparsities, counts, ORDERS):
        # Another seed for the stream than for the network.
        ordered = replace(benchmark, stream={**benchmark.stream, "seed": order})
        masks = ordered.heterogeneous(seed, count, sparsity)
        columns = {
            "method": "heterogeneous",
            "benchmark": benchmark.name,
            "seed": seed,
            "order": order,
            "sparsity": sparsity,
            "masks": count,
        }
        for task in benchmark.unseen_tasks():
            yield Planned(ordered.task_job(seed, task, masks), columns)


def with_tests(rows: list[Row]) -> list[Row]:
    """The rows and, for each benchmark, N and sparsity, one of Welch's t-test between the orders.

    difference: mean accuracy of the second order minus the first, in points.
    """
    keys, tests = ["benchmark", "masks", "sparsity"], []
    for place, group in pd.DataFrame(rows, dtype=object).groupby(keys, sort=False):
        first, second = (
            group["accuracy"][group["order"] == order].astype(float) for order in ORDERS
        )
        measured = {
            "p_value": float(ttest_ind(first, second, equal_var=False).pvalue),
            "difference": round(100 * float(second.mean() - first.mean()), 2),
        }
        tests.append({"method": "t-test", **dict(zip(keys, place, strict=True)), **measured})
    return rows + tests


def forgetting(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """A long stream on LeNet in one learner, and a short one under each norm policy of a ResNet."""
    # At the end of the long one all tasks are looked for by the quick methods, ten by
    # α-optimisation, which is slow.
    if benchmark.name.startswith("permuted"):
        smoke = scale == "smoke"
        basis, tasks = (5, 14) if smoke else (20, 60)
        searches = [[method, inputs, list(range(tasks))] for method, inputs in SEARCHES]
        some = [*range(5), *range(basis, basis + 5)]
        searches.append(["alpha", 128 if smoke else 2000, some])
        labels = None if smoke else STREAM_LABELS
        size = {"basis": basis, "tasks": tasks, "sparsity": 0.9, "labels": labels}
        yield _stream(benchmark, "none", {**size, "searches": searches})
    elif scale != "smoke":
        size = {"basis": 2, "tasks": 5, "sparsity": 0.8, "labels": None}
        parts: dict[str, Any] = {
            key: {**part, "recipe": {**part["recipe"], "epochs": IMAGE_EPOCHS}}
            for key, part in (("mask", benchmark.mask), ("task", benchmark.task))
        }
        for norm in NORMS:
            short = replace(benchmark, backbone={**benchmark.backbone, "norm": norm}, **parts)
            yield _stream(short, norm, {**size, "searches": []})


def task_inference(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Tasks found again from unlabelled inputs, by every method, and inputs of no task."""
    sizes = table_of("benchmarks.toml", f"task-inference.{scale}")
    sizes["counts"] = sizes["counts"] + sizes.pop("more_counts", {}).get(benchmark.name, [])
    words = benchmark.name == "clinc150"
    if words and scale == "smoke":  # which needs no data
        return
    seed = benchmark.seeds[0]
    masks, recipe, labels = (sizes.pop(key) for key in ("masks", "recipe", "labels"))
    settings = {**_without_task(benchmark), "seed": 0, **sizes, "tasks": max(sizes["counts"])}
    if words:
        count = benchmark.unseen
        settings |= {"counts": [count], "tasks": count, "methods": ["exhaustive"], "unseen": 0}
    else:
        settings["stream"] |= {"tasks": settings["tasks"] + sizes["unseen"]}
        random = {"count": masks, "seed": 0, "disjoint": False, "sparsity": 0.7}
        settings |= {"random": random, "labels": labels}
        settings["recipe"] = {**benchmark.task["recipe"], **recipe}
    columns = {"method": "ImpressLearn", "benchmark": benchmark.name, "seed": seed}
    yield Planned(Job(tell_tasks, settings), columns)


def _stream(benchmark: Benchmark, norm: str, settings: Mapping[str, Any]) -> Planned:
    recipes = {"mask": benchmark.mask, "coefficients": benchmark.task}
    place = _without_task(benchmark)
    job = Job(learn_stream, {**place, **recipes, "granularity": "unit", "seed": 0, **settings})
    named = {"method": "ImpressLearn", "benchmark": benchmark.name, "norm": norm}
    return Planned(job, {**named, "seed": benchmark.seeds[0]})


def _without_task(benchmark: Benchmark) -> dict[str, Any]:
    """The stream and network of the first seed."""
    place = benchmark.place(benchmark.seeds[0], 0)
    return {key: place[key] for key in ("stream", "backbone")}


def with_searches(rows: list[Row]) -> list[Row]:
    """The rows of tasks, and a row for each time that a task was looked for."""
    searched = []
    for row in rows:
        row["identical"] = float(row["identical"])
        named = {key: row[key] for key in ("benchmark", "seed", "task", "role")}
        for key, value in row.items():
            if key.startswith(FOUND):
                search = key.removeprefix(FOUND).replace(" from ", ", ")
                searched.append({"method": "search", **named, "search": search, "found": value})
    return rows + searched


def class_incremental(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Tasks of single inputs over one network: ours, and rivals over the same features."""
    (seed,) = benchmark.seeds
    settings = {
        **benchmark.place(seed, 0),
        **benchmark.data_settings(),
        "featured": True,
        "tasks": list(benchmark.unseen_tasks()),
        "preset": "few_labels",
        "learner": {"max_bytes": 2000},
        "rivals": list(INCREMENTAL),
    }
    columns = {"benchmark": benchmark.name, "seed": seed}
    yield Planned(Job(tasks_of_single_inputs, settings), columns)
