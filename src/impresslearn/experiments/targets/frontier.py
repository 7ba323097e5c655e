"""Accuracy against bytes a task: every way to learn a task on one frozen random network."""

from __future__ import annotations

from impresslearn.experiments.targets.benchmarks import permuted_mnist
from impresslearn.experiments.targets.plan import Plan, Planned, Target


def plan(scale: str) -> Plan:
    benchmark = permuted_mnist(scale)
    planned = []
    for task in benchmark.unseen_tasks():
        for count in (10, 20):
            job = benchmark.task_job(
                0, task, (), random={"count": count, "sparsity": 0.9, "seed": 0}, output_scale=True
            )
            planned.append(Planned(job, {"method": "layer", "seed": 0, "masks": count}))
    return Plan(planned, benchmark.data, benchmark.described(), (0,))


TARGET = Target(
    name="frontier", title="Accuracy against bytes a task", claim="", expects="", cost="", plan=plan
)
