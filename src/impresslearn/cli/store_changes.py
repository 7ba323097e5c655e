"""`impresslearn store import | compact | rm`: what changes a store."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from impresslearn.cli.arguments import AsJson, Store
from impresslearn.cli.output import confirmed, counted, print_json, remark, say
from impresslearn.errors import InputError

ASKED_BY_NAME = 5
"""Names that `rm` puts into its question."""


def import_(
    store: Store,
    source: Annotated[Path, typer.Argument(metavar="OTHER", help="Another store of this network.")],
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this task; may be repeated. By default all."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy tasks from another store, all or none.

    The masks they need come along. Both stores must have begun with the same masks.
    """
    from impresslearn.store import import_tasks

    names = import_tasks(store, source, task or None)
    if as_json:
        print_json({"store": str(store), "source": str(source), "imported": names})
    else:
        say(f"{counted(len(names), 'task')} of {source} copied into {store}")


def compact(store: Store, as_json: AsJson = False) -> None:
    """Give back the room of removed tasks."""
    from impresslearn.report.wording import size
    from impresslearn.store import compact_store

    before, after = compact_store(store)
    if as_json:
        print_json({"store": str(store), "bytes_before": before, "bytes_after": after})
    else:
        say(f"{store}: {size(before)} before, {size(after)} now")


def rm(
    store: Store,
    tasks: Annotated[list[str], typer.Argument(metavar="TASK", help="What to remove.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove tasks, all of those named or none.

    A basis task's mask goes with it unless other tasks combine it. A mask that belongs to no task
    goes by its own name.
    """
    from impresslearn.store import remove_tasks

    names = list(dict.fromkeys(tasks))
    if not yes:
        _ask(store, names)
    kept = remove_tasks(store, names)
    if as_json:
        print_json({"store": str(store), "removed": names, "masks_kept": kept})
        return
    say(f"{counted(len(names), 'task')} removed from {store}")
    for mask, count in kept.items():
        say(f"mask {mask!r} stays: combined by {counted(count, 'task')}")


def _ask(store: Path, names: list[str]) -> None:
    if not _someone_is_there():
        raise InputError("removing tasks cannot be undone: pass --yes where nobody can be asked")
    shown = ", ".join(names[:ASKED_BY_NAME]) + (", …" if len(names) > ASKED_BY_NAME else "")
    if not confirmed(f"Remove {counted(len(names), 'task')} from {store} ({shown})?"):
        remark("nothing was removed")
        raise typer.Exit(1)


def _someone_is_there() -> bool:
    return sys.stdin.isatty()
