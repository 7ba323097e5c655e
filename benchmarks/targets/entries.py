"""Methods as tables of the TOML files, the jobs that they become, and the targets made of them.

An entry is one of these:
- ours: preset; learner: changes of its settings; masks: how many random masks, or "basis", the
  masks of the benchmark's basis tasks; small: whether the network is, for the preset; features:
  "learned" on these tasks, also of methods; adapted: a recipe, by which it was trained on them
- a method of `benchmarks.rivals` by its name: name, options; masks, "basis", are its bank

recipe and lr change the recipe of the preset or the benchmark; norm, head, init, gain and blocks
change the network; featured methods learn from features that are computed once; budgets are values
of max_bytes. rates, rounded, smoothed and tried say what is tried: see `development_trials`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pandas as pd

from benchmarks.jobs import Job
from benchmarks.targets.benchmarks import Benchmark, find_benchmark
from benchmarks.targets.plan import VALUES, Planned, Row, Table, table_of
from benchmarks.work.learning import adapt_network, learn_by_name, learn_by_settings
from impresslearn.learner.presets import preset as find_preset

# Bytes at which ours and the others are compared.
BUDGETS = (100, 300, 700, 1200, 2500, 3500, 5000, 6500, 8000, 12_000, 16_000, 32_000)
OURS = "ImpressLearn"  # what the names of our methods start with
SMOOTHING = 0.05  # of labels, if it is tried on development tasks
OF_THE_NETWORK = ("norm", "head", "init", "gain", "blocks")
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
    if "adapted" in entry:
        where = {key: settings[key] for key in ("stream", "backbone", "size") if key in settings}
        where["stream"] = {**where["stream"], "augment": True}
        where |= {"tasks": list(range(suited.basis)), "recipe": entry["adapted"]}
        needs, settings = (Job(adapt_network, where),), settings | {"adapted": True}
    if entry.get("features") == "learned":
        settings["features"] = list(range(benchmark.basis))
    if "preset" in entry:
        return Job(learn_by_settings, settings | _ours(suited, entry), needs)
    recipe = suited.task["recipe"] | _recipe(entry)
    named = {"method": entry["name"], "options": entry.get("options", {}), "recipe": recipe}
    return Job(learn_by_name, settings | named, needs)


def development_trials(entry: Table) -> Iterator[Table]:
    """The entry at each of its `rates`, with other ranges as `rounded` says, at the rates of
    `smoothed` with smoothed labels, and with each C of `tried`.
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
    for strength in entry.get("tried", []):
        setting = f"{entry['setting']}, C = {strength}"
        yield {**plain, "setting": setting, "options": {**options, "C": strength}}


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


def at_budgets(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on each of the unseen tasks; in turn where later ones share a projection.

    Trials are made on the first basis tasks, or without any on the same tasks and held-out training
    examples.
    """
    (seed,), unseen = benchmark.seeds, list(benchmark.unseen_tasks())
    for entry in _methods(f"{benchmark.name}.{scale}"):
        data = benchmark.data_settings()
        data |= {"featured": True} if entry.get("featured") else {}
        together = {"preset", "features"} & entry.keys() or "components" in entry.get("options", {})
        columns = {**_columns(benchmark, entry), "seed": seed}
        for budget in entry.get("budgets", [None]):
            limited, more = entry, {}
            if budget is not None:
                limited, more = {**entry, "learner": {"max_bytes": budget}}, {"budget": budget}
            for tasks in [unseen] if together else [[task] for task in unseen]:
                job = entry_job(benchmark, limited, seed, {**data, "tasks": tasks})
                yield Planned(job, {**columns, **more})
        basis = list(range(benchmark.basis))
        data |= {} if basis else {"validation": True}
        for trial in development_trials(entry):
            tried = {**columns, "role": "development", "setting": trial["setting"]}
            tried |= {key: trial[key] for key in ("lr",) if key in trial}
            tasks = (basis or unseen)[: entry.get("trial_tasks")]
            for some in [tasks] if together else [[task] for task in tasks]:
                yield Planned(entry_job(benchmark, trial, seed, {**data, "tasks": some}), tried)


def with_fits(rows: list[Row]) -> list[Row]:
    """The rows; those with a budget say whether the task met it: fits, 1.0 or 0.0."""
    for row in rows:
        if "budget" in row:
            row["fits"] = float(row["bytes_per_task"] <= row["budget"])
    return rows


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
    preset, changes = find_preset(entry["preset"]), entry.get("learner", {})
    if "bit_price" in changes:  # in place of the preset's budget
        changes = {"max_bytes": None, **changes}
    small = dict(preset.small) if entry.get("small") else {}
    recipe, masks = small.pop("task_recipe", preset.task_recipe), small.pop("masks", None)
    settings: dict[str, Any] = {
        "learner": {"penalty": preset.penalty, **preset.more, **small, **changes},
        "recipe": recipe.settings() | _recipe(entry),
    }
    masks = entry.get("masks", masks)
    if masks and masks != "basis":
        settings["random"] = {"count": masks, "seed": 0, "disjoint": True, "kernels": True}
    return settings


def _recipe(entry: Table) -> dict[str, Any]:
    return entry.get("recipe", {}) | {key: entry[key] for key in ("lr",) if key in entry}


def benchmark_of_evaluation(name: str, scale: str) -> Benchmark:
    """The benchmark of scale `small` or smoke, with the seeds of its evaluation."""
    benchmark = find_benchmark(name, "small" if scale == "paper" else scale)
    evaluation = _frontier_methods(benchmark, scale)["evaluation"]
    return replace(benchmark, seeds=tuple(evaluation["seeds"]))


def accuracy_and_bytes(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on development and evaluation tasks; all a task alone needs is counted."""
    # Unrelated tasks (permuted MNIST) are learned over random masks, which cost nothing. Related
    # ones (rotated MNIST) and images (Split-CIFAR-100) are learned over a trained bank, which all
    # tasks share and which is not counted, as the network is not. Choices are made on development
    # tasks; figures are of other networks, other draws of the stream, and the test set.
    methods = _frontier_methods(benchmark, scale)
    for entry in (*methods["ours"], *methods["others"]):
        entry = {**entry, "recipe": methods["recipe"] | entry.get("recipe", {})}
        yield from _rows(benchmark, entry, methods["evaluation"], "evaluation")
        for trial in development_trials(entry):
            yield from _rows(benchmark, trial, methods["development"], "development")


def with_budgets(rows: list[Row]) -> list[Row]:
    """The rows and, for each benchmark and budget, one that compares ours with the others.

    Of either side the setting of the highest mean accuracy on evaluation tasks among those whose
    mean `prediction_bytes` fit: ours, other: the method and its setting; accuracy, other_accuracy;
    difference: accuracy minus other_accuracy, in points. Missing sides are left out.
    """
    measured = pd.DataFrame([row for row in rows if row["role"] == "evaluation"])
    settings = measured.groupby(["benchmark", "method", "setting"], sort=False)
    means = settings[["accuracy", "prediction_bytes"]].mean().reset_index()
    compared = list(rows)
    for name, budget in product(means["benchmark"].unique(), BUDGETS):
        row: Row = {"benchmark": name, "role": "budget", "budget": budget}
        fitting = means[(means["benchmark"] == name) & (means["prediction_bytes"] <= budget)]
        is_ours = fitting["method"].str.startswith(OURS)
        sides = ("ours", "accuracy", is_ours), ("other", "other_accuracy", ~is_ours)
        for side, accuracy, which in sides:
            if which.any():
                best = fitting.loc[fitting.loc[which, "accuracy"].idxmax()]
                row[side] = f"{best['method']}: {best['setting']}"
                row[accuracy] = float(best["accuracy"])
        if {"ours", "other"} <= row.keys():
            row["difference"] = 100 * (row["accuracy"] - row["other_accuracy"])
        compared.append(row)
    return compared


def _rows(benchmark: Benchmark, entry: Table, where: Table, role: str) -> Iterator[Planned]:
    columns: Table = {"benchmark": benchmark.name, "role": role}
    columns |= {key: entry[key] for key in ("method", "setting", "lr") if key in entry}
    columns["smoothing"] = entry["recipe"]["label_smoothing"]
    which = {"validation": True} if role == "development" else {}
    for seed, place in product(where["seeds"], range(where["tasks"])):
        job = entry_job(benchmark, entry, seed, {"task": benchmark.basis + place, **which})
        yield Planned(job, {**columns, "seed": seed})


def _frontier_methods(benchmark: Benchmark, scale: str) -> Table:
    return table_of("frontier.toml", f"{scale}.{benchmark.name}")
