"""The paper's figures and tables, and ours, as targets of `python -m benchmarks reproduce`.

`targets.toml` says what each is about and how it is shown, `benchmarks.toml` what streams, networks
and recipes a scale uses. The modules beside this one hold the jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.targets import entries, masks, parameters, tasks
from benchmarks.targets.benchmarks import Benchmark, find_benchmark
from benchmarks.targets.plan import (
    Plan,
    Planned,
    Row,
    Table,
    Target,
    read_tables,
    resolved,
    table_of,
)
from impresslearn.checks import check_choice

Jobs = Callable[[Benchmark, str], Iterable[Planned]]
JOBS: dict[str, Jobs] = {
    "rotated-mnist": masks.comparison,
    "permuted-mnist": masks.comparison,
    "rotated-mnist-paper": masks.comparison,
    "permuted-mnist-paper": masks.comparison,
    "split-cifar100": masks.comparison,
    "split-cifar100-wide": masks.comparison,
    "split-imagenet": masks.comparison,
    "gn-comparison": masks.without_task_names,
    "random-masks": masks.random_masks,
    "hybrid": masks.hybrid,
    "task-order": tasks.task_order,
    "overlap": masks.overlap,
    "frontier": entries.accuracy_and_bytes,
    "few-labels": tasks.few_labels,
    "forgetting": tasks.forgetting,
    "task-inference": tasks.task_inference,
    "customers": entries.customers,
    "pretrained": entries.task_by_task,
    "image-network": entries.at_budgets,
    "sentences": entries.at_budgets,
    "clinc150": entries.task_by_task,
    "class-incremental": tasks.class_incremental,
}
DERIVED: dict[str, Callable[[list[Row]], list[Row]]] = {
    "task-order": tasks.with_tests,
    "overlap": masks.by_layer,
    "frontier": entries.with_budgets,
    "image-network": entries.with_fits,
    "sentences": entries.with_fits,
    "forgetting": tasks.with_searches,
}
BENCHMARKS: dict[str, Callable[[str, str], Benchmark]] = {
    "frontier": entries.benchmark_of_evaluation,
    "few-labels": tasks.spread_rotations,
}


def list_targets() -> tuple[Target, ...]:
    """All targets, in the paper's order."""
    return tuple(find_target(name) for name in read_tables("targets.toml")["target"])


def find_target(name: str) -> Target:
    """The target of that name. Raises InputError naming the choices."""
    check_choice("the target", name, read_tables("targets.toml")["target"])
    entry = table_of("targets.toml", f"target.{name}")
    texts = {key: entry[key] for key in ("title", "claim", "expects", "cost")}
    if name == "parameters":
        return Target(name, **texts, plan=parameters.plan)
    return Target(name, **texts, plan=lambda scale: _plan(name, entry, scale))


def _plan(name: str, entry: Table, scale: str) -> Plan:
    find = BENCHMARKS.get(name, find_benchmark)
    benchmarks = [find(benchmark, scale) for benchmark in entry["benchmarks"]]
    planned: list[Planned] = []
    for benchmark in benchmarks:
        planned += JOBS[name](benchmark, scale)
    described = {benchmark.name: benchmark.described() for benchmark in benchmarks}
    # Where orders of one network's tasks are compared, they are what is drawn.
    seeds = {row.columns.get("order", row.columns["seed"]) for row in planned}
    return Plan(
        planned,
        data="; ".join(dict.fromkeys(benchmark.data for benchmark in benchmarks)),
        settings=described if len(benchmarks) > 1 else benchmarks[0].described(),
        seeds=sorted(seeds),
        figures=_figures(entry["figures"], list(described)),
        tables=entry["tables"],
        derive=DERIVED.get(name),
    )


def _figures(templates: list[Table], names: list[str]) -> list[Table]:
    """The figures; one with {benchmark} in its title is drawn for each benchmark, or some."""
    figures = []
    for template in templates:
        figure = resolved("targets.toml", template)
        numbers = range(len(names)) if "{benchmark}" in figure["title"] else [0]
        for number in figure.pop("benchmarks", numbers):
            figures.append(_filled(figure, names[number]))
    return figures


def _filled(value: Any, name: str) -> Any:
    """The value with a benchmark's name for {benchmark} in its texts."""
    if isinstance(value, dict):
        return {key: _filled(inner, name) for key, inner in value.items()}
    return value.replace("{benchmark}", name) if isinstance(value, str) else value
