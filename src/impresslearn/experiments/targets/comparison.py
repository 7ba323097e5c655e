"""The plot that the paper shows for every benchmark: strategies over the number of masks N.

X (a single foreign mask), heterogeneous and homogeneous combinations on unseen tasks, the basis
tasks without their names (GN, by the paper's α-optimisation and by our halving), and a dedicated
mask a task (SupSup) as the reference.
"""

from __future__ import annotations

from collections.abc import Iterator

from impresslearn.experiments.jobs import Job
from impresslearn.experiments.targets.benchmarks import Benchmark
from impresslearn.experiments.targets.plan import Plan, Planned
from impresslearn.experiments.work.evaluation import infer_task, judge_foreign_mask

ACCURACY_FIGURE = {
    "kind": "box",
    "x": "masks",
    "y": "accuracy",
    "group": "method",
    "order": ["X", "random", "heterogeneous", "homogeneous", "GN", "GN, halving"],
    "reference": {"method": "supsup"},
    "x_label": "basis masks N",
    "y_label": "test accuracy",
}
HALVED = 15
"""Basis tasks, the first ones, that halving looks for."""
ACCURACY_TABLE = {
    "title": "Mean test accuracy and bytes a task",
    "columns": ["method", "masks"],
    "values": ["accuracy", "bytes_per_task"],
}


def comparison(benchmark: Benchmark) -> Plan:
    """The plan of one benchmark."""
    planned = []
    for seed in benchmark.seeds:
        for sparsity in benchmark.sparsities:
            common = {"seed": seed, "sparsity": sparsity}
            planned += [
                Planned(job, {"method": method, **common, **more})
                for method, job, more in _strategies(benchmark, seed, sparsity)
            ]
    title = f"{benchmark.name}: accuracy over the number of masks"
    return Plan(
        planned,
        data=benchmark.data,
        settings=benchmark.described(),
        seeds=benchmark.seeds,
        figures=[{**ACCURACY_FIGURE, "title": title}],
        tables=[ACCURACY_TABLE],
    )


def _strategies(
    benchmark: Benchmark, seed: int, sparsity: float
) -> Iterator[tuple[str, Job, dict[str, int]]]:
    """method, job, further columns."""
    first = benchmark.mask_job(seed, 0, sparsity)
    for task in benchmark.unseen_tasks():
        yield "supsup", benchmark.mask_job(seed, task, sparsity), {}
        foreign = Job(judge_foreign_mask, benchmark.place(seed, task), (first,))
        yield "X", foreign, {"masks": 1}
    for count in benchmark.counts:
        masks = benchmark.heterogeneous(seed, count, sparsity)
        for task in benchmark.unseen_tasks():
            yield "heterogeneous", benchmark.task_job(seed, task, masks), {"masks": count}
        for task in range(min(count, benchmark.gn_tasks)):
            yield "GN", gn_job(benchmark, seed, task, masks, "alpha"), {"masks": count}
        for task in range(min(count, HALVED)):
            yield "GN, halving", gn_job(benchmark, seed, task, masks, "halving"), {"masks": count}
        if count in benchmark.repeats:
            same = benchmark.homogeneous(seed, count, sparsity)
            for task in benchmark.unseen_tasks():
                yield "homogeneous", benchmark.task_job(seed, task, same), {"masks": count}


def gn_job(
    benchmark: Benchmark, seed: int, task: int, masks: tuple[Job, ...], method: str, **own: object
) -> Job:
    """One basis task of the bank without its name."""
    settings = {
        **benchmark.place(seed, task),
        "position": task,
        "method": method,
        "inputs": benchmark.gn_inputs,
        **own,
    }
    return Job(infer_task, settings, masks)
