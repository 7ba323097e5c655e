"""The jobs of accuracy against bytes a task; everything that a task alone needs is counted.

Three streams: unrelated tasks (permuted MNIST) over random masks, which cost nothing; related ones
(rotated MNIST) and images (Split-CIFAR-100) over a trained bank, whose masks all tasks share and
which is not counted, as the network is not. Ours are whole-number coefficients, learned with a
price on their bits and entropy-coded. Beside them the paper's form (a float a mask and layer),
coefficients that are rounded after training, SupSup with its mask coded, LoRA and VeRA through
PEFT, rounded and coded, and fine-tuning. `frontier.toml` has the points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from impresslearn.experiments.jobs import Job, JobFunction
from impresslearn.experiments.targets.benchmarks import Benchmark, disjoint_masks, find_benchmark
from impresslearn.experiments.targets.plan import Planned
from impresslearn.experiments.targets.tables import read_tables, table_of
from impresslearn.experiments.work.training import fine_tune, learn_adapter
from impresslearn.methods.adapters import ADAPTER_RECIPES
from impresslearn.methods.finetuning import FINETUNING_RECIPE

OURS = "ImpressLearn, coded"
PAPER = "the paper's floats"
ROUNDED = "a coefficient a unit, rounded"
ADAPTERS = {"lora": "LoRA", "vera": "VeRA"}
KAIMING = {"init": "kaiming_normal", "gain": 1.0}
"""Weights that suit training, and adapters far better than those that suit masks."""
TASKS = 10

JobOfTask = Callable[[int], Job]


@dataclass(frozen=True)
class Coded:
    """A point of our curve: masks N, the price of a bit, epochs, label smoothing and scales.

    epochs, lr: None for the benchmark's; trained: over the first N masks of its basis, else over
    disjoint random ones.
    """

    granularity: str
    masks: int
    price: float
    epochs: int | None = None
    smoothing: float = 0.0
    trained: bool = False
    output_scale: bool = False
    lr: float | None = None

    def __str__(self) -> str:
        scale = " and a scale a unit" if self.output_scale else ""
        epochs = f", {self.epochs} epochs" if self.epochs else ""
        smoothed = ", smoothed labels" if self.smoothing else ""
        return f"{self.granularity}{scale}, N={self.masks}, price {self.price:g}{epochs}{smoothed}"

    def changes(self, benchmark: Benchmark) -> dict[str, Any]:
        """What its jobs have other than the benchmark's."""
        recipe = {"epochs": self.epochs, "lr": self.lr, "label_smoothing": self.smoothing}
        changed = {key: value for key, value in recipe.items() if value}
        return {
            "granularity": self.granularity,
            "precision": "coded",
            "bit_price": self.price,
            "recipe": {**benchmark.task["recipe"], **changed},
            **({"output_scale": True} if self.output_scale else {}),
            **({} if self.trained else {"random": disjoint_masks(self.masks)}),
        }


@dataclass(frozen=True)
class Race:
    """The methods that run on one benchmark.

    sparsity: of trained masks, SupSup's included, and of independent random ones; floats: numbers
    of random masks under the paper's form, beside trained ones in the benchmark's counts; rounded:
    precision and number of masks of the coefficients rounded after training; adapters: kinds and
    ranks; masks: further sparsities of SupSup; mask_epochs: how long its masks are trained, by
    default as the bank's.
    """

    ours: tuple[Coded, ...]
    floats: tuple[int, ...] = ()
    rounded: tuple[tuple[str, int], ...] = ()
    adapters: tuple[tuple[str, int], ...] = ()
    on_our_weights: tuple[tuple[str, int], ...] = ()
    sparsity: float = 0.9
    masks: tuple[float, ...] = ()
    mask_epochs: int | None = None
    finetuning: bool = False


def find_benchmark_of_race(name: str, scale: str) -> Benchmark:
    """The benchmark of scale `small`, or that of smoke."""
    return find_benchmark(name, "small" if scale == "paper" else scale)


def accuracy_and_bytes(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on the same unseen tasks."""
    table = table_of(read_tables("frontier.toml"), f"{scale}.{benchmark.name}")
    race = Race(**{**table, "ours": tuple(Coded(**point) for point in table["ours"])})
    seed = benchmark.seeds[0]
    for method, setting, job_of in _entries(benchmark, race, seed):
        columns = {
            "benchmark": benchmark.name, "method": method, "setting": setting, "seed": seed
        }  # fmt: skip
        for task in list(benchmark.unseen_tasks())[:TASKS]:
            yield Planned(job_of(task), columns)


def _entries(benchmark: Benchmark, race: Race, seed: int) -> Iterator[tuple[str, str, JobOfTask]]:
    """method, setting, and the job of a task."""
    sparsity = race.sparsity

    def learned(needs: tuple[Job, ...] = (), **changes: Any) -> JobOfTask:
        return lambda task: benchmark.task_job(seed, task, needs, **changes)

    for point in race.ours:
        needs = benchmark.heterogeneous(seed, point.masks, sparsity) if point.trained else ()
        yield OURS, str(point), learned(needs, **point.changes(benchmark))
    for count in race.floats:
        random = benchmark.independent(count, sparsity, 0)
        yield f"{PAPER}, random", f"N={count}", learned(random=random)
    for count in benchmark.counts:
        trained = benchmark.heterogeneous(seed, count, sparsity)
        yield f"{PAPER}, trained", f"N={count}", learned(trained)
    for precision, count in race.rounded:
        random = benchmark.independent(count, sparsity, 0)
        job_of = learned(granularity="unit", precision=precision, random=random)
        yield ROUNDED, f"{precision}, N={count}", job_of
    for each in (sparsity, *race.masks):
        yield "SupSup, coded mask", f"sparsity {each:g}", _mask(benchmark, race, seed, each)
    for kind, rank in race.adapters:
        yield ADAPTERS[kind], f"rank {rank}", _adapter(benchmark, seed, kind, rank, KAIMING)
    for kind, rank in race.on_our_weights:
        job_of = _adapter(benchmark, seed, kind, rank, {})
        yield f"{ADAPTERS[kind]}, our weights", f"rank {rank}", job_of
    if race.finetuning:
        recipe = FINETUNING_RECIPE.settings() | _length(benchmark)
        job_of = _trained(benchmark, seed, fine_tune, KAIMING, {"recipe": recipe, "seed": 0})
        yield "fine-tuning", "all weights", job_of


def _mask(benchmark: Benchmark, race: Race, seed: int, sparsity: float) -> JobOfTask:
    longer: dict[str, Any] = {}
    if race.mask_epochs is not None:
        longer["recipe"] = {**benchmark.mask["recipe"], "epochs": race.mask_epochs}
    return lambda task: benchmark.mask_job(seed, task, sparsity, **longer)


def _adapter(
    benchmark: Benchmark, seed: int, kind: str, rank: int, weights: dict[str, Any]
) -> JobOfTask:
    """An adapter, rounded to whole numbers after training and entropy-coded as ours are."""
    recipe = ADAPTER_RECIPES[kind].settings() | _length(benchmark)
    if kind == "lora" and rank < 4:
        recipe["lr"] = 0.03
    more = {"kind": kind, "rank": rank, "precision": "coded", "recipe": recipe, "seed": 0}
    return _trained(benchmark, seed, learn_adapter, weights, more)


def _trained(
    benchmark: Benchmark,
    seed: int,
    function: JobFunction,
    weights: dict[str, Any],
    more: dict[str, Any],
) -> JobOfTask:
    """A job on the benchmark's network with other frozen weights."""

    def job_of(task: int) -> Job:
        place = benchmark.place(seed, task)
        return Job(function, {**place, "backbone": {**place["backbone"], **weights}, **more})

    return job_of


def _length(benchmark: Benchmark) -> dict[str, Any]:
    """Five epochs, as SupSup's masks here; ours have three to ten (docs/reproduction.md)."""
    given = {key: benchmark.task["recipe"][key] for key in ("epochs", "min_steps", "batch_size")}
    return given | ({"epochs": 5} if given["epochs"] else {})
