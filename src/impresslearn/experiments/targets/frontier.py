"""The jobs of accuracy against bytes a task; everything that a task alone needs is counted.

Unrelated tasks (permuted MNIST) over random masks, which cost nothing, or none; related ones
(rotated MNIST) and images (Split-CIFAR-100) over a trained bank, whose masks all tasks share and
which is not counted, as the network is not. All methods have the same epochs, and their whole
numbers the same coder.

Rates, label smoothing, and how finely numbers are rounded, are chosen on development tasks by
validation examples out of their training sets: three rates a method, a fourth where the best lies
at an edge, and labels smoothed or not at the best of them. Figures
are of evaluation tasks: other networks, other draws of the stream, and the test set. Each row says
which it is. `frontier.toml` has the methods; the constants of numbers on weights were chosen on two
permutations outside the target (docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from impresslearn.experiments.targets.benchmarks import Benchmark, find_benchmark
from impresslearn.experiments.targets.entries import entry_job
from impresslearn.experiments.targets.plan import Planned, Table, read_tables, table_of

SMOOTHING = 0.05


def benchmark_of_evaluation(name: str, scale: str) -> Benchmark:
    """The benchmark of scale `small`, or that of smoke, with the seeds of its evaluation."""
    benchmark = find_benchmark(name, "small" if scale == "paper" else scale)
    return replace(benchmark, seeds=tuple(_methods(benchmark, scale)["evaluation"]["seeds"]))


def accuracy_and_bytes(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on development and evaluation tasks."""
    methods = _methods(benchmark, scale)
    for entry in (*methods["ours"], *methods["others"]):
        entry = {**entry, "recipe": methods["recipe"] | entry.get("recipe", {})}
        yield from _rows(benchmark, entry, methods["evaluation"], "evaluation")
        for trial in _trials(entry):
            yield from _rows(benchmark, trial, methods["development"], "development")


def _trials(entry: Table) -> Iterator[Table]:
    """The entry at every rate that is tried, at those of `rounded` with other ranges, and at those
    of `smoothed` with smoothed labels.
    """
    options = {key: each for key, each in entry.get("options", {}).items() if key != "largest"}
    plain = {**entry, "recipe": entry["recipe"] | {"label_smoothing": 0.0}}
    plain |= {"options": options} if options else {}
    for rate in entry.get("rates", []):
        yield {**plain, "lr": rate}
    for largest, rate in entry.get("rounded", []):
        setting = f"{entry['setting']}, {2 * largest + 1} levels"
        yield {**plain, "setting": setting, "lr": rate, "options": {**options, "largest": largest}}
    for rate in entry.get("smoothed", []):
        yield {**plain, "lr": rate, "recipe": plain["recipe"] | {"label_smoothing": SMOOTHING}}


def _rows(benchmark: Benchmark, entry: Table, where: Table, role: str) -> Iterator[Planned]:
    columns: Table = {"benchmark": benchmark.name, "role": role}
    columns |= {key: entry[key] for key in ("method", "setting", "lr") if key in entry}
    columns["smoothing"] = entry["recipe"]["label_smoothing"]
    which = {"validation": True} if role == "development" else {}
    for seed, place in product(where["seeds"], range(where["tasks"])):
        job = entry_job(benchmark, entry, seed, {"task": benchmark.basis + place, **which})
        yield Planned(job, {**columns, "seed": seed})


def _methods(benchmark: Benchmark, scale: str) -> Table:
    return table_of(read_tables("frontier.toml"), f"{scale}.{benchmark.name}")
