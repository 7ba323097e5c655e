"""The jobs of targets about small tasks, by ours and by what their users would take otherwise.

`pretrained`: five classes and 600 images a task, over a network that was trained on other classes;
`clinc150`: fifteen intents and 1,500 sentences a task, over numbers that stand for sentences;
`customers`: 100 images a task or 20, over the masks of a dozen tasks with more.
`small_tasks.toml` says which methods run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from impresslearn.experiments.jobs import Job
from impresslearn.experiments.targets.benchmarks import Benchmark, disjoint_masks
from impresslearn.experiments.targets.plan import (
    ROW_VALUES,
    Planned,
    Row,
    Table,
    read_tables,
    table_of,
)
from impresslearn.experiments.work.methods import fit_classifier, learn_by_name, learn_by_settings
from impresslearn.learner.presets import preset as find_preset

VALUES = (*ROW_VALUES, "seconds")


def task_by_task(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on each of the unseen tasks."""
    seed = benchmark.seeds[0]
    for entry in _methods(f"{benchmark.name}.{scale}"):
        for task in benchmark.unseen_tasks():
            job = _job(benchmark, entry, seed, {"task": task})
            yield Planned(job, {**_columns(benchmark, entry), "seed": seed}, VALUES)


def customers(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on all customers, from so many images of each, spread over its classes."""
    sizes = table_of(read_tables("small_tasks.toml"), f"customers.{scale}")["labels"]
    tasks = {"tasks": list(benchmark.unseen_tasks()), "balanced": True}
    for entry, labels, seed in product(_methods(f"customers.{scale}"), sizes, benchmark.seeds):
        job = _job(benchmark, entry, seed, {**tasks, "labels": labels})
        columns = {**_columns(benchmark, entry), "labels": labels, "seed": seed}
        yield Planned(job, columns, ("rows",))


def by_customer(rows: list[Row]) -> list[Row]:
    """A row a customer."""
    return [
        {**{key: each for key, each in row.items() if key != "rows"}, **customer}
        for row in rows
        for customer in row["rows"]
    ]


def _methods(path: str) -> list[Table]:
    return table_of(read_tables("small_tasks.toml"), path)["methods"]


def _columns(benchmark: Benchmark, entry: Table) -> dict[str, Any]:
    named = {key: entry[key] for key in ("method", "setting")}
    return {"role": "evaluation", "benchmark": benchmark.name, **named}


def _job(benchmark: Benchmark, entry: Table, seed: int, which: Mapping[str, Any]) -> Job:
    """A method on some tasks."""
    changes: dict[str, Any] = {key: entry[key] for key in ("norm", "head") if key in entry}
    suited = replace(benchmark, backbone={**benchmark.backbone, **changes})
    place = suited.place(seed, 0)
    settings = {"stream": place["stream"], "backbone": place["backbone"], "seed": 0, **which}
    basis = entry.get("masks") == "basis"
    needs = suited.heterogeneous(seed, suited.basis, suited.sparsities[0]) if basis else ()
    if "preset" in entry:
        return Job(learn_by_settings, settings | _ours(suited, entry), needs)
    if "estimator" in entry:
        chosen = {"estimator": entry["estimator"], "features": entry["features"]}
        return Job(fit_classifier, settings | chosen, needs)
    recipe = {**suited.task["recipe"], "lr": entry["lr"]}
    named = {"method": entry["name"], "options": entry.get("options", {}), "recipe": recipe}
    return Job(learn_by_name, settings | named)


def _ours(benchmark: Benchmark, entry: Table) -> dict[str, Any]:
    """A preset, and what is changed of it, as settings of a job."""
    preset = find_preset(entry["preset"])
    found: dict[str, Any] = {
        "learner": {"penalty": preset.penalty, **preset.more, **entry.get("learner", {})},
        "recipe": preset.task_recipe.settings() | entry.get("recipe", {}),
    }
    masks = entry.get("masks", preset.masks)
    if masks and masks != "basis":
        found["random"] = disjoint_masks(masks) | {"kernels": True}
    if entry.get("features") == "learned":
        found["features"] = list(range(benchmark.basis))
    return found
