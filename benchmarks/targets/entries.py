"""Methods as tables of the TOML files, the jobs that they become, and the targets of small tasks.

An entry is one of these:
- ours: preset; learner: changes of its settings; masks: how many random masks, or "basis", the
  masks of the benchmark's basis tasks; features: "learned" on these tasks
- a method of `benchmarks.rivals` by its name: name, options; masks, "basis", are its bank

recipe and lr change the recipe of the preset or the benchmark; norm, head, init and gain change the
network. rates, rounded and smoothed say what is tried: see `development_trials`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from benchmarks.jobs import Job
from benchmarks.targets.benchmarks import Benchmark, disjoint_masks
from benchmarks.targets.plan import VALUES, Planned, Table, table_of
from benchmarks.work.learning import learn_by_name, learn_by_settings
from impresslearn.learner.presets import preset as find_preset

SMOOTHING = 0.05  # of labels, if it is tried on development tasks
OF_THE_NETWORK = ("norm", "head", "init", "gain")
TIMED = (*VALUES, "seconds")


def entry_job(benchmark: Benchmark, entry: Table, seed: int, which: Mapping[str, Any]) -> Job:
    """The job of an entry; which: the settings that name its tasks."""
    changes = {key: entry[key] for key in OF_THE_NETWORK if key in entry}
    suited = replace(benchmark, backbone={**benchmark.backbone, **changes})
    place = suited.place(seed, 0)
    settings = {"stream": place["stream"], "backbone": place["backbone"], "seed": 0, **which}
    needs: tuple[Job, ...] = ()
    if entry.get("masks") == "basis":
        needs = suited.heterogeneous(seed, suited.basis, suited.sparsities[0])
    if "preset" in entry:
        return Job(learn_by_settings, settings | _ours(suited, entry), needs)
    recipe = suited.task["recipe"] | _recipe(entry)
    named = {"method": entry["name"], "options": entry.get("options", {}), "recipe": recipe}
    return Job(learn_by_name, settings | named, needs)


def development_trials(entry: Table) -> Iterator[Table]:
    """The entry at each of its `rates`, with other ranges as `rounded` says, and at the rates of
    `smoothed` with smoothed labels.
    """
    options = {key: value for key, value in entry.get("options", {}).items() if key != "largest"}
    plain = dict(entry)
    if "recipe" in entry:
        plain["recipe"] = entry["recipe"] | {"label_smoothing": 0.0}
    if options:
        plain["options"] = options
    for rate in entry.get("rates", []):
        yield {**plain, "lr": rate}
    for largest, rate in entry.get("rounded", []):
        setting = f"{entry['setting']}, {2 * largest + 1} levels"
        yield {**plain, "setting": setting, "lr": rate, "options": {**options, "largest": largest}}
    for rate in entry.get("smoothed", []):
        yield {**plain, "lr": rate, "recipe": plain["recipe"] | {"label_smoothing": SMOOTHING}}


def task_by_task(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on each of the unseen tasks, and what was tried on the first basis task."""
    seed = benchmark.seeds[0]
    for entry in _methods(f"{benchmark.name}.{scale}"):
        columns = {**_columns(benchmark, entry), "seed": seed}
        for task in benchmark.unseen_tasks():
            yield Planned(entry_job(benchmark, entry, seed, {"task": task}), columns, TIMED)
        for trial in development_trials(entry):
            job = entry_job(benchmark, trial, seed, {"task": 0, "validation": True})
            tried = {**_columns(benchmark, trial), "role": "development", "lr": trial["lr"]}
            yield Planned(job, {**tried, "seed": seed}, TIMED)


def customers(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on all customers, from a few images of each, spread over its classes."""
    sizes = table_of("small_tasks.toml", f"customers.{scale}")["labels"]
    tasks = {"tasks": list(benchmark.unseen_tasks()), "balanced": True}
    for entry, labels, seed in product(_methods(f"customers.{scale}"), sizes, benchmark.seeds):
        job = entry_job(benchmark, entry, seed, {**tasks, "labels": labels})
        yield Planned(job, {**_columns(benchmark, entry), "labels": labels, "seed": seed})


def _methods(path: str) -> list[Table]:
    return table_of("small_tasks.toml", path)["methods"]


def _columns(benchmark: Benchmark, entry: Table) -> dict[str, Any]:
    named = {key: entry[key] for key in ("method", "setting")}
    return {"role": "evaluation", "benchmark": benchmark.name, **named}


def _ours(benchmark: Benchmark, entry: Table) -> dict[str, Any]:
    """A preset with the changes of an entry, as settings of a job."""
    preset = find_preset(entry["preset"])
    settings: dict[str, Any] = {
        "learner": {"penalty": preset.penalty, **preset.more, **entry.get("learner", {})},
        "recipe": preset.task_recipe.settings() | _recipe(entry),
    }
    masks = entry.get("masks", preset.masks)
    if masks and masks != "basis":
        settings["random"] = disjoint_masks(masks) | {"kernels": True}
    if entry.get("features") == "learned":
        settings["features"] = list(range(benchmark.basis))
    return settings


def _recipe(entry: Table) -> dict[str, Any]:
    return entry.get("recipe", {}) | {key: entry[key] for key in ("lr",) if key in entry}
