"""Methods as tables of the TOML files, and the jobs that they become.

An entry is one of
- ours: preset; learner: what is other in its settings; masks: how many random ones, or "basis",
  those of the benchmark's basis tasks; features: "learned" on these;
- a classifier of scikit-learn: estimator, features; masks, precision;
- the best of the basis tasks' masks: name = "best_mask", masks = "basis";
- another method by its name: name, options.
recipe, lr: what is other in the recipe than in the preset's or the benchmark's; norm, head, init,
gain: in the network than in the benchmark's. rates, rounded, smoothed: see `development_trials`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.jobs import Job
from benchmarks.targets.benchmarks import Benchmark, disjoint_masks
from benchmarks.targets.plan import Table
from benchmarks.work.methods import (
    choose_mask,
    fit_classifier,
    learn_by_name,
    learn_by_settings,
)
from impresslearn.learner.presets import preset as find_preset

SMOOTHING = 0.05
"""Of labels, where it is tried on development tasks."""
OF_THE_NETWORK = ("norm", "head", "init", "gain")


def entry_job(benchmark: Benchmark, entry: Table, seed: int, which: Mapping[str, Any]) -> Job:
    """An entry on some tasks; which: their settings, as jobs take them."""
    changes: dict[str, Any] = {key: entry[key] for key in OF_THE_NETWORK if key in entry}
    suited = replace(benchmark, backbone={**benchmark.backbone, **changes})
    place = suited.place(seed, 0)
    settings = {"stream": place["stream"], "backbone": place["backbone"], "seed": 0, **which}
    basis = entry.get("masks") == "basis"
    needs = suited.heterogeneous(seed, suited.basis, suited.sparsities[0]) if basis else ()
    if "preset" in entry:
        return Job(learn_by_settings, settings | _ours(suited, entry), needs)
    if "estimator" in entry:
        names = ("estimator", "features", "precision")
        chosen = {key: entry[key] for key in names if key in entry}
        return Job(fit_classifier, settings | chosen, needs)
    if entry["name"] == "best_mask":
        return Job(choose_mask, settings, needs)
    recipe = suited.task["recipe"] | _recipe(entry)
    named = {"method": entry["name"], "options": entry.get("options", {}), "recipe": recipe}
    return Job(learn_by_name, settings | named)


def development_trials(entry: Table) -> Iterator[Table]:
    """The entry at every rate that is tried, at those of `rounded` with other ranges, and at those
    of `smoothed` with smoothed labels.
    """
    options = {key: each for key, each in entry.get("options", {}).items() if key != "largest"}
    plain = dict(entry)
    if "recipe" in entry:
        plain["recipe"] = entry["recipe"] | {"label_smoothing": 0.0}
    plain |= {"options": options} if options else {}
    for rate in entry.get("rates", []):
        yield {**plain, "lr": rate}
    for largest, rate in entry.get("rounded", []):
        setting = f"{entry['setting']}, {2 * largest + 1} levels"
        yield {**plain, "setting": setting, "lr": rate, "options": {**options, "largest": largest}}
    for rate in entry.get("smoothed", []):
        yield {**plain, "lr": rate, "recipe": plain["recipe"] | {"label_smoothing": SMOOTHING}}


def _ours(benchmark: Benchmark, entry: Table) -> dict[str, Any]:
    """A preset, and what is changed of it, as settings of a job."""
    preset = find_preset(entry["preset"])
    found: dict[str, Any] = {
        "learner": {"penalty": preset.penalty, **preset.more, **entry.get("learner", {})},
        "recipe": preset.task_recipe.settings() | _recipe(entry),
    }
    masks = entry.get("masks", preset.masks)
    if masks and masks != "basis":
        found["random"] = disjoint_masks(masks) | {"kernels": True}
    if entry.get("features") == "learned":
        found["features"] = list(range(benchmark.basis))
    return found


def _recipe(entry: Table) -> dict[str, Any]:
    return entry.get("recipe", {}) | {key: entry[key] for key in ("lr",) if key in entry}
