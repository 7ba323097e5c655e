"""Commands that list, describe, check, restore, remove and copy the tasks of a store."""

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from impresslearn.cli import shared
from impresslearn.cli.shared import AsJson, Module, Store, echo, option
from impresslearn.errors import TasksFailedError, print_line, visible
from impresslearn.tables import format_value, size

Task = Annotated[str, typer.Argument(metavar="TASK", help="The task's name.")]
MaybeTask = Annotated[str | None, typer.Argument(metavar="TASK", help="One of its tasks.")]


def tasks(store: Store, task: MaybeTask = None, as_json: AsJson = False) -> None:
    """List the tasks, or the versions of one task.

    In the order they were learned; the last version of a task is in use.

    Example: impresslearn tasks shops.impress
    """
    from impresslearn.store.store_files import list_tasks

    rows = [each.row() for each in list_tasks(store, task)]
    if as_json:
        shared.print_json(rows)
    elif rows:
        shared.print_table(rows)
    else:
        print_line("no tasks yet")


def info(store: Store, task: MaybeTask = None, as_json: AsJson = False) -> None:
    """Show the network, settings and bytes of a store, or of one task.

    Example: impresslearn info shops.impress oslo
    """
    from impresslearn.store.store_files import describe_store, list_tasks

    if task is None:
        facts = describe_store(store)
    else:
        *_, known = list_tasks(store, task)
        facts = {**known.row(), "labels": list(known.classes), "parts": dict(known.breakdown)}
        facts |= known.history
    if as_json:
        shared.print_json(facts)
    else:
        _print_facts(facts)


def verify(store: Store, module: Module = None) -> None:
    """Check every byte of a store; exit status 6 if it is damaged.

    Example: impresslearn verify shops.impress
    """
    from impresslearn.learner.loading import verify_store

    counts = verify_store(store, shared.load_module(module))
    echo(f"{store} is sound: {counts['tasks']:,} tasks, {counts['masks']:,} masks")


def restore(
    store: Store,
    task: Task,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="A number from `tasks`.")],
    module: Module = None,
) -> None:
    """Put a former version of a task back as its next version.

    Example: impresslearn restore shops.impress oslo 1
    """
    with shared.open_learner(store, module) as learner:
        number = learner.restore_task(task, version).tasks_[task].version
    echo(f"{task}: version {version} is back, as version {number}")


def remove(
    store: Store,
    names: Annotated[list[str], typer.Argument(metavar="TASK", help="The tasks to remove.")],
    yes: Annotated[bool, option(None, "Do not ask.", "--yes", "-y")] = False,
    module: Module = None,
) -> None:
    """Remove tasks with all their versions.

    Masks stay, for other tasks to combine. The file keeps its size until `compact`.

    Example: impresslearn remove shops.impress oslo bergen --yes
    """
    with shared.open_learner(store, module) as learner:
        # Raises for an unknown task, before any task is removed. A name may be given twice.
        names = [*{learner.tasks_[name].name: None for name in names}]
        if not yes:  # without a terminal, this question ends the command
            typer.confirm(visible(f"Remove {', '.join(names)} from {store}?"), err=True, abort=True)
        for name in names:
            learner.remove_task(name)
    echo(f"removed {', '.join(names)}")


def backup(
    store: Store,
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="The new file.")],
    overwrite: Annotated[bool, option(None, "Replace COPY.", "--overwrite")] = False,
) -> None:
    """Copy a store that others may be using.

    Put a backup back with the same command in the other direction and --overwrite. Do not use cp:
    a log that the old store left would spoil the new one.

    Example: impresslearn backup shops.impress monday.impress
    """
    from impresslearn.store.store_files import backup_store

    backup_store(store, copy, overwrite=overwrite)
    echo(f"{copy}: a copy of {store}")


def merge(
    store: Store,
    others: Annotated[
        list[Path], typer.Argument(metavar="FROM", help="Stores with the same network and masks.")
    ],
    on_conflict: Annotated[
        str,
        option(
            "WORD", "Tasks that STORE has with other numbers: error, skip, or version (the next)."
        ),
    ] = "error",
    module: Module = None,
) -> None:
    """Copy the tasks of other stores into one.

    The exit status is 3 if some could not be copied. Basis tasks stay behind: make the stores from
    one base (`save(tasks=[])` in Python).

    Example: impresslearn merge all.impress monday.impress tuesday.impress
    """
    counts: Counter[str] = Counter()
    with shared.open_learner(store, module) as learner:
        for other in others:
            with shared.open_learner(other, module, readonly=True) as source:
                learned = (name for name, task in source.tasks_.items() if task.role == "learned")
                while names := list(islice(learned, 1000)):  # of one transaction
                    encoded = source.encoded(names)
                    outcomes = learner.commit_encoded(encoded, on_conflict=cast(Any, on_conflict))
                    for name, outcome in outcomes.items():
                        if isinstance(outcome, Exception):
                            shared.error(outcome, name)
                            outcome = "failed"
                        counts["version" if outcome.startswith("version") else outcome] += 1
    echo(", ".join(f"{count:,} {word}" for word, count in counts.items()) or "no tasks")
    if counts["failed"]:
        raise typer.Exit(TasksFailedError.exit_status)


def diff(
    first: Store,
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="Another store.")],
    as_json: AsJson = False,
) -> None:
    """List the tasks that differ between two stores.

    Example: impresslearn diff monday.impress tuesday.impress
    """
    from impresslearn.store.store_files import diff_stores

    differences = diff_stores(first, second)
    if as_json:
        shared.print_json(differences)
        return
    words = (f"only in {first}", f"only in {second}", "different numbers")
    for word, names in zip(words, differences.values(), strict=True):
        for name in names:
            echo(f"{name}: {word}")
    if not any(differences.values()):
        echo("the tasks are the same")


def compact(
    store: Store,
    versions: Annotated[
        int | None, option("N", "Keep this number of versions of each task.", min=1)
    ] = None,
) -> None:
    """Shrink the file; with --versions also delete former ones.

    Example: impresslearn compact shops.impress --versions 2
    """
    from impresslearn.store.store_files import compact_store

    before, after = compact_store(store, versions=versions)
    echo(f"{store}: {size(before)} before, {size(after)} now")


def _print_facts(facts: Mapping[str, Any], indent: str = "") -> None:
    """Prints a line per value, and the values of a dictionary indented below its name."""
    for name, value in facts.items():
        label = indent + name.replace("_", " ")
        if value is None or value == {}:
            continue
        if isinstance(value, Mapping):
            echo(label)
            _print_facts(value, indent + "  ")
            continue
        text = format_value(name, value)
        if isinstance(value, (list, tuple)):
            # A network may have thousands of classes, so only one line of them is shown.
            items = []
            for item in value:
                if isinstance(item, list) and len(item) == 2 and isinstance(item[1], list):
                    item = f"{item[0]} ({'×'.join(map(str, item[1]))})"  # a layer and its shape
                items.append(str(item))
            text = ", ".join(items)
        if len(text) > shared.WIDTH - 26:
            text = f"{text[: shared.WIDTH - 27]}…"
        echo(f"{label:<24}  {text}")
