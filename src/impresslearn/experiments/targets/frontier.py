"""The jobs of accuracy against bytes a task; everything that a task alone needs is counted.

Three streams: unrelated tasks (permuted MNIST) over random masks, which cost nothing; related ones
(rotated MNIST) and images (Split-CIFAR-100) over a trained bank, whose masks all tasks share and
which is not counted, as the network is not. Ours are whole-number coefficients, learned with a
price on their bits and entropy-coded. Beside them the paper's form (a float a mask and layer),
coefficients that are rounded after training, SupSup with its mask coded, LoRA and VeRA through
PEFT, rounded and coded, and fine-tuning. `frontier.toml` has the points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from impresslearn.experiments.jobs import Job
from impresslearn.experiments.targets.benchmarks import Benchmark, disjoint_masks, find_benchmark
from impresslearn.experiments.targets.plan import Planned, Table, read_tables, table_of
from impresslearn.experiments.work.baselines import fine_tune, learn_adapter
from impresslearn.methods.adapters import ADAPTER_RECIPES
from impresslearn.methods.finetuning import FINETUNING_RECIPE

PAPER = "the paper's floats"
ADAPTERS = {"lora": "LoRA", "vera": "VeRA"}
KAIMING = {"init": "kaiming_normal", "gain": 1.0}
"""Weights that suit training, and adapters far better than those that suit masks."""
TASKS = 10


def find_benchmark_of_race(name: str, scale: str) -> Benchmark:
    """The benchmark of scale `small`, or that of smoke."""
    return find_benchmark(name, "small" if scale == "paper" else scale)


def accuracy_and_bytes(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on the same unseen tasks."""
    race = table_of(read_tables("frontier.toml"), f"{scale}.{benchmark.name}")
    seed = benchmark.seeds[0]
    for method, setting, first in _first_jobs(benchmark, race, seed):
        columns = {"benchmark": benchmark.name, "method": method, "setting": setting}
        for task in benchmark.unseen_tasks()[:TASKS]:
            job = replace(first, settings={**first.settings, "task": task})
            yield Planned(job, {**columns, "seed": seed})


def _first_jobs(benchmark: Benchmark, race: Table, seed: int) -> Iterator[tuple[str, str, Job]]:
    """method, setting, and the job of the first task; those of others differ in the task alone."""
    sparsity, task = race["sparsity"], 0
    for point in race["ours"]:
        trained = point.get("trained", False)
        needs = benchmark.heterogeneous(seed, point["masks"], sparsity) if trained else ()
        job = benchmark.task_job(seed, task, needs, **_changes(benchmark, point))
        yield "ImpressLearn, coded", _words(point), job
    for count in race["floats"]:
        random = benchmark.independent(count, sparsity, 0)
        job = benchmark.task_job(seed, task, random=random)
        yield f"{PAPER}, random", f"N={count}", job
    for count in benchmark.counts:
        needs = benchmark.heterogeneous(seed, count, sparsity)
        yield f"{PAPER}, trained", f"N={count}", benchmark.task_job(seed, task, needs)
    for precision, count in race["rounded"]:
        random = benchmark.independent(count, sparsity, 0)
        rounded = {"granularity": "unit", "precision": precision, "random": random}
        job = benchmark.task_job(seed, task, **rounded)
        yield "a coefficient a unit, rounded", f"{precision}, N={count}", job
    recipe = {**benchmark.mask["recipe"], **race["mask_recipe"]}
    tracked = benchmark.backbone.get("norm") == "per_task"
    coded: dict[str, Any] = {"precision": "coded"} if tracked else {}
    for each in (sparsity, *race["masks"]):
        job = benchmark.mask_job(seed, task, each, recipe=recipe, **coded)
        yield "SupSup, coded mask", f"sparsity {each:g}", job
    place = benchmark.place(seed, task)
    suited = {**place, "backbone": {**place["backbone"], **KAIMING}}
    for kind, rank in race["adapters"]:
        yield ADAPTERS[kind], f"rank {rank}", _adapter(benchmark, suited, kind, rank)
    for kind, rank in race["on_our_weights"]:
        job = _adapter(benchmark, place, kind, rank)
        yield f"{ADAPTERS[kind]}, our weights", f"rank {rank}", job
    if race["finetuning"]:
        recipe = FINETUNING_RECIPE.settings() | _length(benchmark)
        yield "fine-tuning", "all weights", Job(fine_tune, {**suited, "recipe": recipe, "seed": 0})


def _words(point: Table) -> str:
    """A point of our curve, as a record names it."""
    scale = " and a scale a unit" if point.get("output_scale") else ""
    epochs = f", {point['epochs']} epochs" if "epochs" in point else ""
    smoothed = ", smoothed labels" if "smoothing" in point else ""
    masks, price = point["masks"], point["price"]
    return f"{point['granularity']}{scale}, N={masks}, price {price:g}{epochs}{smoothed}"


def _changes(benchmark: Benchmark, point: Table) -> dict[str, Any]:
    """What the jobs of a point of our curve have other than the benchmark's."""
    names = {"epochs": "epochs", "lr": "lr", "smoothing": "label_smoothing"}
    recipe = {name: point[key] for key, name in names.items() if key in point}
    found: dict[str, Any] = {
        "granularity": point["granularity"],
        "precision": "coded",
        "bit_price": point["price"],
        "recipe": benchmark.task["recipe"] | recipe,
    }
    if point.get("output_scale"):
        found["output_scale"] = True
    return found if point.get("trained") else found | {"random": disjoint_masks(point["masks"])}


def _adapter(benchmark: Benchmark, place: Table, kind: str, rank: int) -> Job:
    """An adapter, rounded to whole numbers after training and entropy-coded as ours are."""
    recipe = ADAPTER_RECIPES[kind].settings() | _length(benchmark)
    if kind == "lora" and rank < 4:
        recipe["lr"] = 0.03
    settings = {"kind": kind, "rank": rank, "precision": "coded", "recipe": recipe, "seed": 0}
    return Job(learn_adapter, place | settings)


def _length(benchmark: Benchmark) -> dict[str, Any]:
    """Five epochs, as SupSup's masks here; ours have three to ten (docs/reproduction.md)."""
    given = {key: benchmark.task["recipe"][key] for key in ("epochs", "min_steps", "batch_size")}
    return given | ({"epochs": 5} if given["epochs"] else {})
