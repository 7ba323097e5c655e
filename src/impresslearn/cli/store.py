"""`impresslearn store`: what a store holds, and whether it is sound; tasks copied or removed.

`impresslearn store export` is in `store_export`.
"""

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from impresslearn.cli.arguments import AsJson, Only, OwnNetwork, Store, option, own_module
from impresslearn.cli.help import PlainCommand
from impresslearn.cli.output import (
    confirmed,
    counted,
    info,
    print_facts,
    print_json,
    print_result,
    print_table,
)
from impresslearn.cli.store_export import export
from impresslearn.errors import InputError, StoreError
from impresslearn.tables import size

if TYPE_CHECKING:
    from torch import nn

    from impresslearn.store.tasks import TaskInfo

SHOWN = 100
"""Tasks that `ls` lists on a terminal when nothing is said."""

NAMED = 5
"""Tasks that `rm` names in its question."""

store = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look into a store, check it, copy tasks, export.",
)


def ls(
    store: Store,
    limit: Annotated[
        int | None,
        option("N", f"At most N tasks, 0: all; by default {SHOWN}, with --json all.", min=0),
    ] = None,
    module: OwnNetwork = None,
    as_json: AsJson = False,
) -> None:
    """List the tasks in the order they were learned.

    Example: impresslearn store ls shops.impress --limit 0
    """
    from impresslearn.learner.loading import open_store

    count = (0 if as_json else SHOWN) if limit is None else limit
    with open_store(store, module=own_module(module), readonly=True, progress=False) as learner:
        total = len(learner.tasks_)
        listed = (_facts_of(task.info()) for task in islice(learner.tasks_.all(), count or None))
        if as_json:
            print_json({"store": str(store), "total": total, "tasks": list(listed)})
            return
        headings = ("task", "role", "classes", "masks", "bytes", "learned at")
        rows = ([str(each or "") for each in facts.values()] for facts in listed)
        rows = ([*row, learned[:19].replace("T", " ")] for *row, learned in rows)
        print_table(headings, rows, right=("classes", "masks", "bytes"))
    if 0 < count < total:
        info(f"… and {total - count:,} more; --limit 0 lists all {total:,}")


def show(
    store: Store,
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", help="One task of it.")] = None,
    module: OwnNetwork = None,
    as_json: AsJson = False,
) -> None:
    """Show the network, settings and bytes; or one task.

    Example: impresslearn store show shops.impress oslo
    """
    if task is not None:
        _show_task(store, task, own_module(module), as_json)
        return
    from impresslearn.store import describe_store

    told = describe_store(store)
    if as_json:
        print_json(told)
        return
    network, settings, seeds = told["network"], dict(told["settings"]), told["masks_as_seed"]
    recipes = {name: settings.pop(name) for name in list(settings) if name.endswith("_recipe")}
    spec, stored = network["spec"], told["masks"] - seeds
    masks = [f"{stored:,} stored, {size(told['bytes_a_stored_mask'])} each"] if stored else []
    masks += [f"{seeds:,} as seeds"] if seeds else []
    older = told["former_versions_bytes"]
    features = counted(told["projections"], "projection")
    counted_bytes = told["weights_bytes"] + told["projections_bytes"] + told["tasks_bytes"] + older
    rest = told["file_bytes"] - counted_bytes - stored * (told["bytes_a_stored_mask"] or 0)
    prepared = settings.get("preprocessing") or {}
    if columns := prepared.get("columns"):
        settings["preprocessing"] = prepared | {"columns": f"{len(columns):,} names"}
    print_facts(
        [
            ("store", f"{told['path']} ({size(told['file_bytes'])})"),
            ("created", f"{told['created_at']} by impresslearn {told['library_version']}"),
            ("network", f"{network['name']}, {network['parameters']:,} parameters"),
            ("", _settings({k: v for k, v in spec.items() if k != "name"}) if spec else "adapted"),
            ("head", "own, one for every task" if network.get("head") == "own" else None),
            ("weights", size(told["weights_bytes"]) if told["weights_bytes"] else "as a seed"),
            ("settings", _settings(settings)),
            *((name.replace("_", " "), _settings(recipe)) for name, recipe in recipes.items()),
            ("masks", f"{told['masks']:,}" + (f" ({'; '.join(masks)})" if masks else "")),
            (
                "features",
                f"{features} ({size(told['projections_bytes'])})" if told["projections"] else None,
            ),
            ("tasks", f"{told['tasks']:,} ({size(told['tasks_bytes'])})"),
            ("former versions", size(older) if older else None),
            ("the rest", f"{size(max(0, rest))}: names, how tasks were learned, index, free room"),
        ]
    )


def report(
    store: Store,
    out: Annotated[
        Path | None, option("FILE", "The page; STORE.html unless given.", show_default=False)
    ] = None,
    module: OwnNetwork = None,
    as_json: AsJson = False,
) -> None:
    """Write a page about a store: its tasks, and charts of which masks they use.

    The page opens from the file system, without network.

    Example: impresslearn store report shops.impress
    """
    from impresslearn.learner.charts import write_page
    from impresslearn.learner.loading import open_store

    page = out or store.with_suffix(".html")
    with open_store(store, module=own_module(module), readonly=True, progress=False) as learner:
        write_page(learner, page, title=store.name)
    print_result(as_json, {"written": str(page)}, f"wrote {page}")


def verify(store: Store, module: OwnNetwork = None, as_json: AsJson = False) -> None:
    """Check every byte; exit 0 if sound, else 2.

    Reads every page, mask, task and weight and compares it with what was written.

    Example: impresslearn store verify shops.impress
    """
    from impresslearn.learner.loading import verify_store

    try:
        counts = verify_store(store, own_module(module))
    except (StoreError, InputError) as error:
        if not as_json:
            raise
        line = " ".join(str(error).split())
        print_json({"store": str(store), "sound": False, "error": line})
        raise typer.Exit(2) from None
    held = f"{counted(counts['tasks'], 'task')}, {counted(counts['masks'], 'mask')}"
    told = {"store": str(store), "sound": True, **counts}
    print_result(as_json, told, f"{store} is sound: {held}")


def import_(
    store: Store,
    source: Annotated[Path, typer.Argument(metavar="OTHER", help="Another store of this network.")],
    task: Only = None,
    module: OwnNetwork = None,
    as_json: AsJson = False,
) -> None:
    """Copy tasks from another store, all or none.

    The masks they need come along. Both stores must have begun with the same masks.

    Example: impresslearn store import shops.impress others.impress --task oslo
    """
    from impresslearn.store import import_tasks

    names = import_tasks(store, source, task or None, module=own_module(module))
    told = {"store": str(store), "source": str(source), "imported": names}
    print_result(as_json, told, f"{counted(len(names), 'task')} of {source} copied into {store}")


def versions(
    store: Store,
    task: Annotated[str, typer.Argument(metavar="TASK", help="Which task.")],
    module: OwnNetwork = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of a task; the last one is the present one.

    Example: impresslearn store versions shops.impress oslo
    """
    from impresslearn.learner.loading import open_store

    with open_store(store, module=own_module(module), readonly=True, progress=False) as learner:
        found = [_version_of(each) for each in learner.versions(task)]
    if as_json:
        print_json({"store": str(store), "task": task, "versions": found})
        return
    headings = ("version", "classes", "bytes", "examples", "restored", "learned at")
    rows = ([str("" if each is None else each) for each in facts.values()] for facts in found)
    rows = ([*row, learned[:19].replace("T", " ")] for *row, learned in rows)
    print_table(headings, rows, right=headings[:-1])


def restore(
    store: Store,
    task: Annotated[str, typer.Argument(metavar="TASK", help="Which task.")],
    version: Annotated[int, typer.Argument(metavar="VERSION", help="Which of its versions.")],
    module: OwnNetwork = None,
    as_json: AsJson = False,
) -> None:
    """Put a former version of a task back, as its next version.

    Example: impresslearn store restore shops.impress oslo 1
    """
    from impresslearn.learner.loading import open_store

    with open_store(store, module=own_module(module), progress=False) as learner:
        now = learner.restore_task(task, version).tasks_[task].version
    told = {"store": str(store), "task": task, "restored": version, "version": now}
    print_result(as_json, told, f"version {version} of {task} is back, as its version {now}")


def compact(store: Store, as_json: AsJson = False) -> None:
    """Give back the room of removed tasks.

    Example: impresslearn store compact shops.impress
    """
    from impresslearn.store import compact_store

    before, after = compact_store(store)
    told = {"store": str(store), "bytes_before": before, "bytes_after": after}
    print_result(as_json, told, f"{store}: {size(before)} before, {size(after)} now")


def rm(
    store: Store,
    tasks: Annotated[list[str], typer.Argument(metavar="TASK", help="What to remove.")],
    yes: Annotated[bool, option(None, "Do not ask.", "--yes", "-y")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove tasks, all of those named or none.

    Their former versions go too. A basis task's mask goes with it unless other tasks combine it. A
    mask that belongs to no task goes by its own name.

    Example: impresslearn store rm shops.impress oslo bergen --yes
    """
    from impresslearn.store import remove_tasks

    names = list(dict.fromkeys(tasks))
    if not yes:
        if not _is_terminal():
            raise InputError("removing cannot be undone: pass --yes where nobody can be asked")
        shown = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
        if not confirmed(f"Remove {counted(len(names), 'task')} from {store} ({shown})?"):
            info("nothing was removed")
            raise typer.Exit(1)
    kept = remove_tasks(store, names)
    told = {"store": str(store), "removed": names, "masks_kept": kept}
    stay = (f"mask {mask!r} stays: combined by {counted(n, 'task')}" for mask, n in kept.items())
    print_result(as_json, told, f"{counted(len(names), 'task')} removed from {store}", *stay)


for command in (ls, show, report, verify, export, versions, restore, compact, rm):
    store.command(cls=PlainCommand)(command)
store.command("import", cls=PlainCommand)(import_)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _show_task(store: Path, name: str, module: "nn.Module | None", as_json: bool) -> None:
    from impresslearn.learner.loading import open_store

    with open_store(store, module=module, readonly=True, progress=False) as learner:
        task = learner.tasks_[name]
        kept = learner.tasks_.learned(name).coefficients
    precision = None if kept is None else kept.precision
    if as_json:
        told: dict[str, Any] = {"labels": list(task.classes), "precision": precision}
        told |= {"breakdown": dict(task.breakdown), "history": dict(task.history)}
        print_json(_facts_of(task) | told)
        return
    parts = [f"{part} {size(count)}" for part, count in task.breakdown.items() if count]
    labels = ", ".join(map(str, task.classes[:12])) + (", …" if len(task.classes) > 12 else "")
    metrics = dict(task.history.get("metrics", {}))
    note = metrics.pop("note", None)
    print_facts(
        [
            ("task", task.name),
            ("role", task.role),
            ("classes", f"{len(task.classes)}: {labels}"),
            ("version", f"{task.version:,}" if task.version > 1 else None),
            ("masks", f"{task.num_masks:,}"),
            ("precision", precision),
            ("bytes", f"{task.bytes:,} ({', '.join(parts)})"),
            ("learned at", task.history.get("created_at") or None),
            ("from", _settings(metrics)),
            ("recipe", _settings(task.history.get("recipe", {}))),
            ("note", _settings(note) if isinstance(note, dict) else None),
        ]
    )


def _facts_of(task: "TaskInfo") -> dict[str, Any]:
    return {
        "task": task.name,
        "role": task.role,
        "classes": len(task.classes),
        "masks": task.num_masks,
        "bytes": task.bytes,
        "learned_at": task.history.get("created_at") or None,
    }


def _version_of(task: "TaskInfo") -> dict[str, Any]:
    metrics = task.history.get("metrics", {})
    return {
        "version": task.version,
        "classes": len(task.classes),
        "bytes": task.bytes,
        "examples": metrics.get("examples"),
        "restored": metrics.get("restored"),
        "learned_at": task.history.get("created_at") or None,
    }


def _settings(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)
