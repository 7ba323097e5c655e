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

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from statistics import fmean

from benchmarks.targets.benchmarks import Benchmark, find_benchmark
from benchmarks.targets.entries import development_trials, entry_job
from benchmarks.targets.plan import Planned, Row, Table, table_of

# Bytes at which ours and the others are compared.
BUDGETS = (100, 300, 700, 1200, 2500, 3500, 5000, 6500, 8000, 12_000, 16_000, 32_000)
OURS = "ImpressLearn"  # what the names of our methods start with


def benchmark_of_evaluation(name: str, scale: str) -> Benchmark:
    """The benchmark of scale `small` or smoke, with the seeds of its evaluation."""
    benchmark = find_benchmark(name, "small" if scale == "paper" else scale)
    return replace(benchmark, seeds=tuple(_methods(benchmark, scale)["evaluation"]["seeds"]))


def accuracy_and_bytes(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on development and evaluation tasks."""
    methods = _methods(benchmark, scale)
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
    compared = list(rows)
    for name in dict.fromkeys(row["benchmark"] for row in rows):
        curves: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            if row["benchmark"] == name and row["role"] == "evaluation":
                curves.setdefault((row["method"], row["setting"]), []).append(row)
        for budget in BUDGETS:
            fitting = [of for of in curves.values() if _mean(of, "prediction_bytes") <= budget]
            ours = _best(of for of in fitting if of[0]["method"].startswith(OURS))
            other = _best(of for of in fitting if not of[0]["method"].startswith(OURS))
            columns = {"benchmark": name, "role": "budget", "budget": budget}
            compared.append(columns | _compared(ours, other))
    return compared


def _compared(ours: list[Row], other: list[Row]) -> Row:
    """The measures of two settings, [] where there is none, and their difference."""
    compared: Row = {}
    for rows, side, accuracy in ((ours, "ours", "accuracy"), (other, "other", "other_accuracy")):
        if rows:
            compared[side] = f"{rows[0]['method']}: {rows[0]['setting']}"
            compared[accuracy] = _mean(rows, "accuracy")
    if ours and other:
        compared["difference"] = 100 * (compared["accuracy"] - compared["other_accuracy"])
    return compared


def _best(curves: Iterable[list[Row]]) -> list[Row]:
    return max(curves, key=lambda rows: _mean(rows, "accuracy"), default=[])


def _mean(rows: list[Row], key: str) -> float:
    return fmean(row[key] for row in rows)


def _rows(benchmark: Benchmark, entry: Table, where: Table, role: str) -> Iterator[Planned]:
    columns: Table = {"benchmark": benchmark.name, "role": role}
    columns |= {key: entry[key] for key in ("method", "setting", "lr") if key in entry}
    columns["smoothing"] = entry["recipe"]["label_smoothing"]
    which = {"validation": True} if role == "development" else {}
    for seed, place in product(where["seeds"], range(where["tasks"])):
        job = entry_job(benchmark, entry, seed, {"task": benchmark.basis + place, **which})
        yield Planned(job, {**columns, "seed": seed})


def _methods(benchmark: Benchmark, scale: str) -> Table:
    return table_of("frontier.toml", f"{scale}.{benchmark.name}")
