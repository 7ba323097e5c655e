"""The jobs of targets about small tasks, by ours and by what their users would take otherwise.

`pretrained`: five classes and 600 images a task, over a network that was trained on other classes;
`customers`: 100 images a task or 20, over the masks of a dozen customers with more.
`small_tasks.toml` says which methods run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from impresslearn.experiments.jobs import Job
from impresslearn.experiments.targets.benchmarks import Benchmark, disjoint_masks
from impresslearn.experiments.targets.plan import ROW_VALUES, Planned, Table, read_tables, table_of
from impresslearn.experiments.work.methods import fit_classifier, learn_by_name, learn_by_settings
from impresslearn.learner.presets import preset as find_preset

VALUES = (*ROW_VALUES, "seconds")


def pretrained(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on the tasks that no setting was chosen on."""
    seed = benchmark.seeds[0]
    for entry in _methods(f"pretrained.{scale}"):
        for task in benchmark.unseen_tasks():
            job = _job(benchmark, entry, benchmark.place(seed, task), ())
            yield Planned(job, {**_columns(benchmark, entry), "seed": seed}, VALUES)


def customers(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on every customer, from so many of its images, spread over its classes."""
    sizes = table_of(read_tables("small_tasks.toml"), f"customers.{scale}")["labels"]
    for entry, labels in product(_methods(f"customers.{scale}"), sizes):
        for seed, task in product(benchmark.seeds, benchmark.unseen_tasks()):
            masks = benchmark.heterogeneous(seed, benchmark.basis, benchmark.sparsities[0])
            place = benchmark.place(seed, task) | {"labels": labels, "balanced": True}
            job = _job(benchmark, entry, place, masks if entry.get("masks") == "basis" else ())
            yield Planned(
                job, {**_columns(benchmark, entry), "labels": labels, "seed": seed}, VALUES
            )


def _methods(path: str) -> list[Table]:
    return table_of(read_tables("small_tasks.toml"), path)["methods"]


def _columns(benchmark: Benchmark, entry: Table) -> dict[str, Any]:
    named = {key: entry[key] for key in ("method", "setting")}
    return {"role": "evaluation", "benchmark": benchmark.name, **named}


def _job(
    benchmark: Benchmark, entry: Table, place: Mapping[str, Any], needs: tuple[Job, ...]
) -> Job:
    """A method on one task. place: stream, task and network."""
    norm = {"norm": entry["norm"]} if "norm" in entry else {}
    settings = {**place, "backbone": {**place["backbone"], **norm}, "seed": 0}
    if "preset" in entry:
        return _ours(benchmark, entry, settings, needs)
    if "estimator" in entry:
        chosen = {"estimator": entry["estimator"], "features": entry["features"]}
        return Job(fit_classifier, settings | chosen, needs)
    recipe = {**benchmark.task["recipe"], "lr": entry["lr"]}
    named = {"method": entry["name"], "options": entry.get("options", {}), "recipe": recipe}
    return Job(learn_by_name, settings | named)


def _ours(
    benchmark: Benchmark, entry: Table, settings: dict[str, Any], needs: tuple[Job, ...]
) -> Job:
    """A preset and what is changed of it. masks: as many random ones instead of the preset's."""
    preset = find_preset(entry["preset"])
    learner = {"penalty": preset.penalty, **preset.more, **entry.get("learner", {})}
    recipe = preset.task_recipe.settings() | entry.get("recipe", {})
    masks = entry.get("masks", preset.masks)
    random = {} if needs or not masks else {"random": disjoint_masks(masks)}
    return Job(
        learn_by_settings, {**settings, "learner": learner, "recipe": recipe, **random}, needs
    )
