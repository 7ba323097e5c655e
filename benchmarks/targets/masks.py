"""The jobs of targets about masks: where they come from, how many, and how much they overlap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from benchmarks.jobs import Job
from benchmarks.targets.benchmarks import Benchmark
from benchmarks.targets.plan import Planned, Row
from benchmarks.work.inference import compare_masks, judge_foreign_mask
from benchmarks.work.learning import learn_by_name

NAMELESS = 15  # basis tasks, the first ones, whose inputs are looked for by running every task
# Further numbers of random masks, which cost nothing to make.
MORE_RANDOM = {"smoke": (20,), "small": (240,), "paper": (240, 480)}
SEARCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "ImpressLearn-GN": ("alpha", {}),
    "ImpressLearn-GN, plain entropy": ("alpha", {"method_settings": {"objective": "entropy"}}),
    "SupSup-GN": ("one_shot", {"method_settings": {"objective": "entropy"}}),
    "exhaustive": ("exhaustive", {}),
}
GAINS = (1.0, 2.0)  # of the papers' weights, and of ours, with which masks are more accurate
# Networks and streams of scale `small`: which tasks are found differs much between networks.
TASK_FREE_SEEDS = (0, 1, 2)
OVERLAPPING = 10
OVERLAPS = ("measured", "expected", "by_layer", "expected_by_layer")
KINDS_OF_OVERLAP = (
    ("", "measured", "by_layer"),
    (", if independent", "expected", "expected_by_layer"),
)


def comparison(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """The plot that the paper shows for every benchmark: strategies over the number of masks N."""
    # X is a single foreign mask; GN are basis tasks without their names, by the paper's
    # α-optimisation and by running every task; SupSup, a mask per task, is the reference.
    for seed, sparsity in product(benchmark.seeds, benchmark.sparsities):
        for method, job, more in _strategies(benchmark, seed, sparsity):
            yield Planned(job, {"method": method, "seed": seed, "sparsity": sparsity, **more})


def _strategies(
    benchmark: Benchmark, seed: int, sparsity: float
) -> Iterator[tuple[str, Job, dict[str, int]]]:
    """method, job, further columns."""
    first = benchmark.mask_job(seed, 0, sparsity)
    for task in benchmark.unseen_tasks():
        yield "supsup", benchmark.mask_job(seed, task, sparsity), {}
        yield "X", Job(judge_foreign_mask, benchmark.place(seed, task), (first,)), {"masks": 1}
    for count in benchmark.counts:
        masks = benchmark.heterogeneous(seed, count, sparsity)
        for task in benchmark.unseen_tasks():
            yield "heterogeneous", benchmark.task_job(seed, task, masks), {"masks": count}
        for task in range(min(count, benchmark.gn_tasks)):
            yield "GN", benchmark.gn_job(seed, task, masks, "alpha"), {"masks": count}
        for task in range(min(count, NAMELESS)):
            job = benchmark.gn_job(seed, task, masks, "exhaustive")
            yield "GN, exhaustive", job, {"masks": count}
        if count in benchmark.repeats:
            same = benchmark.homogeneous(seed, count, sparsity)
            for task in benchmark.unseen_tasks():
                yield "homogeneous", benchmark.task_job(seed, task, same), {"masks": count}


def without_task_names(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """ImpressLearn-GN, SupSup-GN and SupSup-GG on the same basis tasks and unlabelled inputs."""
    # Ours beside them: running every task, and α-optimisation with the papers' plain entropy.
    seeds = TASK_FREE_SEEDS if scale == "small" else benchmark.seeds
    every = product(GAINS, seeds, benchmark.sparsities, benchmark.counts)
    values = ("task", "accuracy", "found", "known_accuracy")
    for gain, seed, sparsity, count in every:
        over = replace(benchmark, backbone={**benchmark.backbone, "gain": gain})
        masks = over.heterogeneous(seed, count, sparsity)
        columns = {"gain": gain, "seed": seed, "sparsity": sparsity, "masks": count}
        for task in range(min(count, benchmark.gn_tasks)):
            for method, (search, more) in SEARCHES.items():
                job = over.gn_job(seed, task, masks, search, **more)
                yield Planned(job, {"method": method, **columns}, values)
            yield Planned(masks[task], {"method": "SupSup-GG", **columns})


def random_masks(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Unseen tasks over random and homogeneous masks."""
    quick = scale != "small" or benchmark.backbone["name"] == "lenet_300_100"
    more = MORE_RANDOM[scale] if quick else ()
    seeds = benchmark.seeds[:1] if scale == "small" else benchmark.seeds
    for seed, sparsity in product(seeds, benchmark.sparsities):
        columns = {"benchmark": benchmark.name, "seed": seed, "sparsity": sparsity}
        for task in benchmark.unseen_tasks():
            dedicated = benchmark.mask_job(seed, task, sparsity)
            yield Planned(dedicated, {"method": "supsup", **columns})
            for count in benchmark.repeats:
                same = benchmark.homogeneous(seed, count, sparsity)
                job = benchmark.task_job(seed, task, same)
                yield Planned(job, {"method": "homogeneous", **columns, "masks": count})
            for count in (*benchmark.counts, *more):
                bank = benchmark.independent(count, sparsity, seed)
                job = benchmark.task_job(seed, task, (), random=bank)
                yield Planned(job, {"method": "random", **columns, "masks": count})


def hybrid(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """SupSup's mask in the head and combined masks elsewhere, beside combined masks everywhere."""
    for seed, sparsity, count in product(benchmark.seeds, benchmark.sparsities, benchmark.counts):
        banks = {"heterogeneous": benchmark.heterogeneous(seed, count, sparsity)}
        if count in benchmark.repeats:
            banks["homogeneous"] = benchmark.homogeneous(seed, count, sparsity)
        options = {"allocation": benchmark.mask["allocation"], "sparsity": sparsity}
        named = {"method": "hybrid", "options": options, "recipe": benchmark.task["recipe"]}
        for (source, masks), task in product(banks.items(), benchmark.unseen_tasks()):
            columns = {"seed": seed, "sparsity": sparsity, "masks": count, "source": source}
            whole = benchmark.task_job(seed, task, masks)
            yield Planned(whole, {"method": "ImpressLearn", **columns})
            settings = benchmark.place(seed, task) | {**named, "seed": 0}
            job = Job(learn_by_name, settings, masks)
            yield Planned(job, {"method": "hybrid", **columns})


def overlap(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Mean pairwise Jaccard overlap of ten homogeneous and ten heterogeneous masks."""
    for seed, sparsity in product(benchmark.seeds, benchmark.sparsities):
        for method in ("homogeneous", "heterogeneous"):
            masks = getattr(benchmark, method)(seed, OVERLAPPING, sparsity)
            job = Job(compare_masks, {"backbone": benchmark.place(seed, 0)["backbone"]}, masks)
            columns = {"method": method, "seed": seed, "sparsity": sparsity, "masks": OVERLAPPING}
            yield Planned(job, columns, OVERLAPS)


def by_layer(rows: list[Row]) -> list[Row]:
    """One row per layer, measured and expected, and one for all layers together."""
    rows_by_layer = []
    for row in rows:
        common = {key: value for key, value in row.items() if key not in OVERLAPS}
        for kind, key, layers in KINDS_OF_OVERLAP:
            named = {**common, "group": f"{row['method']}{kind}"}
            for layer, value in [("all", row[key]), *enumerate(row[layers], start=1)]:
                rows_by_layer.append({**named, "layer": str(layer), "overlap": value})
    return rows_by_layer
