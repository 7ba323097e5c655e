"""The jobs of targets about small tasks, by ours and by what their users would take otherwise.

`pretrained`: five classes and 600 images a task, over a network that was trained on other classes;
`clinc150`: fifteen intents and 1,500 sentences a task, over numbers that stand for sentences;
`customers`: 100 images a task or 20, over the masks of a dozen tasks with more.
`small_tasks.toml` says which methods run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from benchmarks.targets.benchmarks import Benchmark
from benchmarks.targets.entries import development_trials, entry_job
from benchmarks.targets.plan import (
    ROW_VALUES,
    Planned,
    Row,
    Table,
    read_tables,
    table_of,
)

VALUES = (*ROW_VALUES, "seconds")


def task_by_task(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on each of the unseen tasks, and what was tried on the first basis task."""
    seed = benchmark.seeds[0]
    for entry in _methods(f"{benchmark.name}.{scale}"):
        for task in benchmark.unseen_tasks():
            job = entry_job(benchmark, entry, seed, {"task": task})
            yield Planned(job, {**_columns(benchmark, entry), "seed": seed}, VALUES)
        for trial in development_trials(entry):
            job = entry_job(benchmark, trial, seed, {"task": 0, "validation": True})
            columns = {**_columns(benchmark, trial), "role": "development", "lr": trial["lr"]}
            yield Planned(job, {**columns, "seed": seed}, VALUES)


def customers(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    """Every method on all customers, from so many images of each, spread over its classes."""
    sizes = table_of(read_tables("small_tasks.toml"), f"customers.{scale}")["labels"]
    tasks = {"tasks": list(benchmark.unseen_tasks()), "balanced": True}
    for entry, labels, seed in product(_methods(f"customers.{scale}"), sizes, benchmark.seeds):
        job = entry_job(benchmark, entry, seed, {**tasks, "labels": labels})
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
