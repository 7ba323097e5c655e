"""Random masks against homogeneous ones over N, on all three benchmarks (appendix)."""

from __future__ import annotations

from collections.abc import Iterator

from impresslearn.experiments.targets.benchmarks import (
    Benchmark,
    described,
    permuted_mnist,
    rotated_mnist,
    split_cifar100,
)
from impresslearn.experiments.targets.comparison import ACCURACY_FIGURE
from impresslearn.experiments.targets.plan import Plan, Planned, Target

MORE = {"smoke": (20,), "small": (240,), "paper": (240, 480)}
"""Numbers of random masks beyond those of the trained ones: they cost nothing to make."""


def plan(scale: str) -> Plan:
    """Unseen tasks over random and homogeneous masks."""
    benchmarks = [make(scale) for make in (rotated_mnist, permuted_mnist, split_cifar100)]
    planned = [each for benchmark in benchmarks for each in _planned(benchmark, scale)]
    figures = [
        {
            **ACCURACY_FIGURE,
            "title": f"{benchmark.name}: random and homogeneous masks",
            "where": {"benchmark": benchmark.name},
        }
        for benchmark in benchmarks
    ]
    table = {
        "title": "Mean test accuracy",
        "columns": ["benchmark", "method", "masks"],
        "values": ["accuracy"],
    }
    settings, data = described(benchmarks)
    seeds = sorted({seed for benchmark in benchmarks for seed in _seeds(benchmark, scale)})
    return Plan(planned, data, settings, seeds, figures, [table])


def _seeds(benchmark: Benchmark, scale: str) -> tuple[int, ...]:
    return benchmark.seeds[:1] if scale == "small" else benchmark.seeds


def _planned(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    quick = scale != "small" or benchmark.backbone["name"] == "lenet_300_100"
    more = MORE[scale] if quick else ()
    for seed in _seeds(benchmark, scale):
        for sparsity in benchmark.sparsities:
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


TARGET = Target(
    name="random-masks",
    title="Random masks against homogeneous ones",
    claim="Random masks need larger N than homogeneous ones for the same accuracy, with a slight "
    "degradation only.",
    expects="on permuted MNIST random masks are as good as trained ones of unrelated tasks; on "
    "rotated MNIST and CIFAR-100 trained ones are far ahead",
    cost="about 7 minutes after the other benchmarks",
    plan=plan,
)
