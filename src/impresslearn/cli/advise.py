"""`impresslearn advise`: which settings fit tasks best in so many bytes."""

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from impresslearn.cli.arguments import (
    AsJson,
    FileOptions,
    Quiet,
    option,
    option_groups,
    own_network,
)
from impresslearn.cli.learn_options import DataOptions, DataSet
from impresslearn.cli.output import echo, info, print_json, print_table
from impresslearn.errors import InputScaleWarning

if TYPE_CHECKING:
    from impresslearn.learner.advice import Advice

STORE = "STORE.impress"


@option_groups
def advise(
    sources: DataOptions,
    files: FileOptions,
    budget: Annotated[str, option("SIZE", "Bytes a task may take in the mean: 500, 2kB.")] = "2kB",
    basis: Annotated[
        int | None,
        option(
            "N",
            "Tasks that masks are trained on, those with the most examples.",
            show_default="a third of the tasks, at most 5",
            min=0,
        ),
    ] = None,
    standardise: Annotated[
        bool,
        option(
            None,
            "Measure mean and deviation on the tasks' inputs and apply them to all inputs.",
            "--standardise",
        ),
    ] = False,
    module: Annotated[
        str | None,
        option(
            "FILE:FUNCTION",
            "A network of your own: what FUNCTION() of FILE.py in this folder returns.",
            "--module",
        ),
    ] = None,
    max_seconds: Annotated[
        float, option("SECONDS", "Recommend the best method found in this time.", min=0)
    ] = 300.0,
    seed: Annotated[int, option("N", "Of everything that is drawn.", min=0)] = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find which settings fit tasks like these best in so many bytes.

    Short trials on examples that are held back; give two tasks or more that are typical of those to
    come. Prints what was tried and the commands that make such a store.

    Example: impresslearn advise --tasks shops/ --budget 2kB
    """
    from impresslearn.cli.new_store import (
        adapted,
        first_names,
        new_preprocessing,
        shape_of,
        tell_of_scale,
    )
    from impresslearn.learner.advice import advise as find_advice
    from impresslearn.tables import size_of

    warnings.simplefilter("ignore", InputScaleWarning)  # it is told in the command line's words
    data, reader = sources.data_sets(), files.reader()
    columns = first_names(reader, data.values())
    raw = replace(reader, mean=None, std=None, columns=columns)
    examples = {name: raw.examples(*each) for name, each in data.items()}
    first, *others = examples.values()
    preprocessing = new_preprocessing(reader, first, others, standardise, columns)
    tell_of_scale(first, preprocessing, lambda line: None if quiet else info(line))
    found = find_advice(
        examples,
        adapted(own_network(module), shape_of(first)),
        max_bytes=size_of(budget),
        max_seconds=max_seconds,
        basis=basis,
        preprocessing=preprocessing,
        seed=seed,
        progress=not quiet,
    )
    repeated = _given(files, module) + ["--standardise"] * standardise

    def commands(of: "Advice") -> list[str]:
        return _commands(of, data, sources.tasks, repeated)

    if as_json:
        cheaper = found.cheaper and _plain(found.cheaper) | {"commands": commands(found.cheaper)}
        plain = {"max_bytes": found.max_bytes, **_plain(found), "trials": found.rows()}
        plain |= {"not_tried": dict(found.skipped), "cheaper": cheaper}
        print_json(plain | {"commands": commands(found)})
        return
    table = found.table()
    marked = zip(table.header, table.numeric, strict=True)
    print_table(table.header, table.rows, right=[heading for heading, right in marked if right])
    if table.note:
        echo(table.note)
    for advice in (found, found.cheaper):
        if advice is not None:
            echo()
            echo(f"{'' if advice is found else 'cheaper: '}{advice.summary()}")
            for command in commands(advice):
                echo(f"  {command}")
    if found.basis or (found.cheaper and found.cheaper.basis):
        echo("Basis tasks take a mask each, kilobytes, which the budget does not count.")


def _given(files: FileOptions, module: str | None) -> list[str]:
    """The options that the commands must repeat."""
    found = [] if module is None else ["--module", module]
    for each in fields(files):
        value, name = getattr(files, each.name), each.name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{'' if value else 'no-'}{name}")
        elif value is not None:
            found += [f"--{name}", str(value)]
    return found


def _commands(
    found: "Advice", data: dict[str, DataSet], folder: Path | None, given: list[str]
) -> list[str]:
    """What makes a store with the recommended settings and learns all of these tasks."""

    def learn(names: Sequence[str], *more: str) -> str:
        pairs = [word for name in names for word in ("--data", f"{name}={data[name].path}")]
        return shlex.join(["impresslearn", "learn", STORE, *pairs, *more, *given])

    options, rest = _options(found), [name for name in data if name not in found.basis]
    commands = []
    if found.basis:
        commands.append(learn(found.basis, "--basis", *options))
        options = []
    if folder is not None:
        return [*commands, learn((), "--tasks", str(folder), *options)]
    return [*commands, learn(rest, *options)]


def _options(found: "Advice") -> list[str]:
    """The options of `impresslearn learn` that make a store of these settings."""
    method = found.best.candidate
    options = ["--preset", method.preset]
    options += ["--backbone", method.backbone] if method.backbone else []
    for name, value in found.settings.items():
        options += [f"--{name.replace('_', '-')}", str(value)]
    if method.masks:
        options += ["--random-masks", str(method.masks), "--mask-source", "disjoint"]
    return options + (["--features"] if method.features else [])


def _plain(found: "Advice") -> dict[str, Any]:
    """What is recommended, as JSON values."""
    method = {"method": found.best.candidate.name, "preset": found.preset}
    return method | {"settings": found.settings, "basis": list(found.basis)}
