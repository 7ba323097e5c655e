"""The paper's figures and tables, and ours, as targets of `python -m benchmarks reproduce`.

`targets.toml` says what each is about and how it is shown, `benchmarks.toml` what streams, networks
and recipes a scale uses. The modules beside this one hold the jobs.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.targets.plan import Plan, Planned, Table, Target, read_tables, resolved, table_of
from impresslearn.checks import check_choice


def list_targets() -> tuple[Target, ...]:
    """All targets, in the paper's order."""
    return tuple(find_target(name) for name in read_tables("targets.toml")["target"])


def find_target(name: str) -> Target:
    """The target of that name. Raises InputError naming the choices."""
    check_choice("the target", name, read_tables("targets.toml")["target"])
    entry = table_of("targets.toml", f"target.{name}")
    texts = {key: entry[key] for key in ("title", "claim", "expects", "cost")}
    plan = _function(entry["plan"]) if "plan" in entry else partial(_plan, entry)
    return Target(name, **texts, plan=plan)


def _function(path: str) -> Any:
    """A function of a module beside this one, by "module.function"."""
    module, name = path.split(".")
    return getattr(import_module(f"{__name__}.{module}"), name)


def _plan(entry: Table, scale: str) -> Plan:
    make = _function(entry.get("make", "benchmarks.find_benchmark"))
    benchmarks = [make(benchmark, scale) for benchmark in entry["benchmarks"]]
    planned: list[Planned] = []
    for benchmark in benchmarks:
        planned += _function(entry["jobs"])(benchmark, scale)
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
        derive=_function(entry["derive"]) if "derive" in entry else None,
    )


def _figures(templates: list[Table], names: list[str]) -> list[Table]:
    """The figures; one with {benchmark} in its title is drawn for each benchmark, or some."""
    figures = []
    for template in templates:
        figure = resolved("targets.toml", template)
        numbers = range(len(names)) if "{benchmark}" in figure["title"] else [0]
        figures += [_filled(figure, names[each]) for each in figure.pop("benchmarks", numbers)]
    return figures


def _filled(value: Any, name: str) -> Any:
    """The value with a benchmark's name for {benchmark} in its texts."""
    if isinstance(value, dict):
        return {key: _filled(inner, name) for key, inner in value.items()}
    return value.replace("{benchmark}", name) if isinstance(value, str) else value
