"""Accuracy against bytes a task, on one frozen random network; everything a task needs is counted.

Ours: whole-number coefficients over disjoint random masks, learned with a price on their bits and
entropy-coded, a coefficient per layer where bytes are few and per unit where there are more.
Beside it the paper's form (a float a mask and layer), the same coefficients rounded after training,
and SupSup with its mask entropy-coded. Competing adapters (LoRA, VeRA) are not in this file yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from impresslearn.experiments.targets.benchmarks import Benchmark, permuted_mnist
from impresslearn.experiments.targets.plan import Plan, Planned, Target

OURS = "ImpressLearn, coded"
TASKS = 10


@dataclass(frozen=True)
class Coded:
    """A point of our curve: masks N, the price of a bit, epochs and label smoothing."""

    granularity: str
    masks: int
    price: float
    epochs: int = 3
    smoothing: float = 0.0


POINTS = {
    "smoke": (Coded("layer", 60, 4.0), Coded("unit", 10, 1.0)),
    "small": (
        Coded("layer", 60, 40.0),
        Coded("layer", 500, 15.0),
        Coded("unit", 20, 1.3, smoothing=0.1),
        Coded("unit", 40, 0.3, epochs=5, smoothing=0.1),
        Coded("unit", 150, 0.07, epochs=5, smoothing=0.1),
    ),
}
POINTS["paper"] = (
    *POINTS["small"],
    Coded("layer", 800, 10.0),
    Coded("layer", 1000, 4.0),
    Coded("unit", 20, 0.5, smoothing=0.1),
    Coded("unit", 60, 0.15, epochs=5, smoothing=0.1),
    Coded("unit", 100, 0.1, epochs=5, smoothing=0.1),
)
FLOATS = {"smoke": (10,), "small": (10, 30, 100), "paper": (10, 30, 100, 240, 480)}
ROUNDED = {"smoke": (5,), "small": (5, 20), "paper": (2, 3, 5, 10, 20)}


def plan(scale: str) -> Plan:
    """Every method on the same unseen tasks."""
    benchmark = permuted_mnist(scale)
    figure = {
        "kind": "line",
        "title": "Accuracy against bytes a task, permuted MNIST",
        "x": "bytes_per_task",
        "y": "accuracy",
        "group": "method",
        "points": ["setting"],
        "log_x": True,
        "frontier": True,
        "ours": [OURS],
        "x_label": "bytes a task",
        "y_label": "test accuracy",
    }
    table = {
        "title": "Mean accuracy and bytes a task",
        "columns": ["method", "setting"],
        "values": ["accuracy", "bytes_per_task"],
    }
    settings = benchmark.described()
    planned = list(_planned(benchmark, scale))
    return Plan(planned, benchmark.data, settings, benchmark.seeds[:1], [figure], [table])


def _planned(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    seed = benchmark.seeds[0]
    tasks = list(benchmark.unseen_tasks())[:TASKS]

    def learned(method: str, setting: str, **own: Any) -> Iterator[Planned]:
        columns = {"method": method, "setting": setting, "seed": seed}
        for task in tasks:
            yield Planned(benchmark.task_job(seed, task, (), **own), columns)

    for point in POINTS[scale]:
        yield from learned(OURS, _name(point), **_settings(benchmark, point))
    for count in FLOATS[scale]:
        random = {"count": count, "sparsity": 0.9, "seed": 0}
        yield from learned("a float per mask and layer (paper)", f"N={count}", random=random)
    for count in ROUNDED[scale]:
        random = {"count": count, "sparsity": 0.9, "seed": 0}
        own = {"random": random, "granularity": "unit", "precision": "int4"}
        yield from learned("per unit, rounded to 4 bits", f"N={count}", **own)
    for task in tasks:
        job = benchmark.mask_job(seed, task, 0.9)
        yield Planned(job, {"method": "SupSup, coded mask", "setting": "0.9", "seed": seed})


def _name(point: Coded) -> str:
    return f"{point.granularity}, N={point.masks}, price {point.price:g}, {point.epochs} epochs"


def _settings(benchmark: Benchmark, point: Coded) -> dict[str, Any]:
    recipe = dict(benchmark.task["recipe"])
    if recipe["epochs"]:
        recipe["epochs"] = point.epochs
    if point.smoothing:
        recipe["label_smoothing"] = point.smoothing
    return {
        "granularity": point.granularity,
        "precision": "coded",
        "bit_price": point.price,
        "random": {"count": point.masks, "seed": 0, "disjoint": True},
        "recipe": recipe,
    }


TARGET = Target(
    name="frontier",
    title="Accuracy against bytes a task",
    claim="Not in the paper, whose task costs 1.2 kB at N = 100 on permuted MNIST and SupSup's "
    "65 kB.",
    expects="seen on one to three tasks: 89% in 0.3 kB, 95% in 1.2 kB, 97% in 3.8 kB, 98% in 12; "
    "SupSup 97% in 12 kB",
    cost="an estimated 20 minutes",
    plan=plan,
)
