"""Accuracy against labelled examples a task: transfer from a bank of related tasks.

Labels are spread evenly over the classes. The basis angles lie evenly around the circle; the unseen
ones are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from impresslearn.experiments.jobs import Job
from impresslearn.experiments.targets.benchmarks import Benchmark, rotated_mnist
from impresslearn.experiments.targets.plan import Plan, Planned, Target
from impresslearn.experiments.work.training import train_mask
from impresslearn.streams.draws import draw_angles

BASIS, UNSEEN = 10, 10
LABELS = {
    "smoke": (20, 50, 200),
    "small": (10, 50, 200, 1000, 10000),
    "paper": (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000),
}


def spread_rotations(scale: str) -> Benchmark:
    """Rotated MNIST with basis angles around the circle, and better trained masks."""
    benchmark = rotated_mnist(scale)
    spread = list(range(0, 360, 360 // BASIS))
    drawn = [angle for angle in draw_angles(360, 0, None) if angle not in spread][:UNSEEN]
    recipe = dict(benchmark.mask["recipe"])
    if scale != "smoke":
        recipe["epochs"] = 5
    return replace(
        benchmark,
        stream={"name": benchmark.stream["name"], "angles": spread + drawn},
        mask={**benchmark.mask, "recipe": recipe},
        basis=BASIS,
        unseen=UNSEEN,
        sparsities=(0.9,),
        seeds=benchmark.seeds[:1],
    )


def plan(scale: str) -> Plan:
    """Trained and random banks, coefficients per layer and unit, and SupSup."""
    benchmark = spread_rotations(scale)
    planned = list(_planned(benchmark, LABELS[scale]))
    figure = {
        "kind": "line",
        "title": "Accuracy from few labels, unseen rotations",
        "x": "labels",
        "y": "accuracy",
        "group": "method",
        "log_x": True,
        "x_label": "labelled examples a task",
        "y_label": "test accuracy",
    }
    table = {
        "title": "Mean test accuracy and bytes a task",
        "columns": ["method", "labels"],
        "values": ["accuracy", "bytes_per_task"],
    }
    settings = benchmark.described()
    return Plan(planned, benchmark.data, settings, benchmark.seeds, [figure], [table])


def _planned(benchmark: Benchmark, labels: tuple[int, ...]) -> Iterator[Planned]:
    for seed in benchmark.seeds:
        for sparsity in benchmark.sparsities:
            masks = benchmark.heterogeneous(seed, BASIS, sparsity)
            random = benchmark.independent(2 * BASIS, sparsity, seed)
            ways: dict[str, tuple[tuple[Job, ...], dict[str, Any]]] = {
                "trained bank, a coefficient per layer": (masks, {}),
                "trained bank, a coefficient per unit": (masks, {"granularity": "unit"}),
                "random bank, a coefficient per unit": (
                    (),
                    {"granularity": "unit", "random": random},
                ),
            }
            for task in benchmark.unseen_tasks():
                for count in labels:
                    columns = {"seed": seed, "sparsity": sparsity, "labels": count}
                    few: dict[str, Any] = {"labels": count, "balanced": True}
                    for method, (needs, own) in ways.items():
                        job = benchmark.task_job(seed, task, needs, **few, **own)
                        yield Planned(job, {"method": method, **columns})
                    dedicated = benchmark.mask_job(seed, task, sparsity)
                    own_mask = Job(train_mask, {**dedicated.settings, **few})
                    yield Planned(own_mask, {"method": "supsup", **columns})


TARGET = Target(
    name="few-labels",
    title="Learning from few labels",
    claim="Not in the paper: it argues that combining masks transfers knowledge.",
    expects="from 50 labels 90% with a trained bank and 65% with a dedicated mask",
    cost="about 4 minutes",
    plan=plan,
)
