"""The targets by name: what `targets.toml` says, with the jobs of each benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.targets import frontier, masks, parameters, small_tasks, tasks
from benchmarks.targets.benchmarks import Benchmark, find_benchmark
from benchmarks.targets.plan import (
    Plan,
    Planned,
    Row,
    Table,
    Target,
    filled,
    read_tables,
    resolved,
    table_of,
)
from impresslearn.checks import check_choice


@dataclass(frozen=True)
class Grid:
    """The jobs of a target. planned: those on one benchmark at a scale; finish: see `Plan`;
    benchmark: finds the benchmark of a name and scale.
    """

    planned: Callable[[Benchmark, str], Iterable[Planned]]
    finish: Callable[[list[Row]], list[Row]] | None = None
    benchmark: Callable[[str, str], Benchmark] = find_benchmark


GRIDS: Mapping[str, Grid] = {
    "rotated-mnist": Grid(masks.comparison),
    "permuted-mnist": Grid(masks.comparison),
    "rotated-mnist-paper": Grid(masks.comparison),
    "permuted-mnist-paper": Grid(masks.comparison),
    "split-cifar100": Grid(masks.comparison),
    "split-imagenet": Grid(masks.comparison),
    "gn-comparison": Grid(masks.without_task_names),
    "random-masks": Grid(masks.random_masks),
    "hybrid": Grid(masks.hybrid),
    "task-order": Grid(tasks.task_order, tasks.with_tests),
    "overlap": Grid(masks.overlap, masks.by_layer),
    "frontier": Grid(
        frontier.accuracy_and_bytes, frontier.with_budgets, frontier.benchmark_of_evaluation
    ),
    "few-labels": Grid(tasks.few_labels, benchmark=tasks.spread_rotations),
    "forgetting": Grid(tasks.forgetting, tasks.by_task),
    "task-inference": Grid(tasks.task_inference, tasks.by_question),
    "customers": Grid(small_tasks.customers, small_tasks.by_customer),
    "pretrained": Grid(small_tasks.task_by_task),
    "clinc150": Grid(small_tasks.task_by_task),
}


def list_targets() -> tuple[Target, ...]:
    """All targets, in the paper's order."""
    return tuple(map(find_target, target_names()))


def target_names() -> tuple[str, ...]:
    """The names that `find_target` takes."""
    return tuple(read_tables("targets.toml")["target"])


def find_target(name: str) -> Target:
    """The target of that name. Raises InputError naming the choices."""
    check_choice("the target", name, target_names())
    entry = _entry(name)
    texts = {key: entry[key] for key in ("title", "claim", "expects", "cost")}
    if name == "parameters":
        return Target(name, **texts, plan=parameters.plan)

    def plan(scale: str) -> Plan:
        find = GRIDS[name].benchmark
        return plan_on(name, [find(benchmark, scale) for benchmark in entry["benchmarks"]], scale)

    return Target(name, **texts, plan=plan)


def plan_on(name: str, benchmarks: Sequence[Benchmark], scale: str) -> Plan:
    """What a target does on these benchmarks."""
    entry, grid = _entry(name), GRIDS[name]
    planned = [each for benchmark in benchmarks for each in grid.planned(benchmark, scale)]
    described = {benchmark.name: benchmark.described() for benchmark in benchmarks}
    return Plan(
        planned,
        data="; ".join(dict.fromkeys(benchmark.data for benchmark in benchmarks)),
        settings=described if len(benchmarks) > 1 else benchmarks[0].described(),
        # Where orders of one network's tasks are compared, they are what is drawn.
        seeds=sorted({each.columns.get("order", each.columns["seed"]) for each in planned}),
        figures=list(_figures(entry["figures"], list(described))),
        tables=entry["tables"],
        finish=grid.finish,
    )


def _entry(name: str) -> Table:
    return table_of(read_tables("targets.toml"), f"target.{name}")


def _figures(templates: Sequence[Table], names: Sequence[str]) -> Iterator[Table]:
    for template in templates:
        figure = resolved(read_tables("targets.toml"), template)
        each = range(len(names)) if "{benchmark}" in figure["title"] else [0]
        for number in figure.pop("benchmarks", each):
            yield filled(figure, "benchmark", names[number])
