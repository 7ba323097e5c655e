"""`impresslearn store`: what a store holds, and whether it is sound; the commands that change or
copy one are in `store_changes` and `store_export`."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from impresslearn.cli.arguments import AsJson, Store
from impresslearn.cli.output import counted, print_facts, print_json, print_table, remark, say
from impresslearn.cli.store_changes import compact, import_, rm
from impresslearn.cli.store_export import export
from impresslearn.errors import InputError, StoreError

if TYPE_CHECKING:
    from impresslearn.state.tasks import TaskInfo

SHOWN = 100
"""Tasks that `ls` lists on a terminal when nothing is said."""

store = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look into a store, check it, copy tasks, export.",
)


def ls(
    store: Store,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help=f"At most N tasks, 0: all; by default {SHOWN}, with --json all.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the tasks in the order they were learned."""
    from impresslearn.learner.loading import open_store

    count = (0 if as_json else SHOWN) if limit is None else limit
    with open_store(store, readonly=True, progress=False) as learner:
        total = len(learner.tasks_)
        listed = (task.info() for task in islice(learner.tasks_.all(), count or None))
        if as_json:
            tasks = [_plain_task(task) for task in listed]
            print_json({"store": str(store), "total": total, "tasks": tasks})
            return
        headings = ("task", "role", "classes", "masks", "bytes", "learned at")
        print_table(headings, map(_row, listed), right=("classes", "masks", "bytes"))
    if 0 < count < total:
        remark(f"… and {total - count:,} more; --limit 0 lists all {total:,}")


def show(
    store: Store,
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", help="One task of it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the network, settings and bytes; or one task."""
    if task is not None:
        _show_task(store, task, as_json)
        return
    from impresslearn.store import describe_store

    told = describe_store(store)
    if as_json:
        print_json(told)
    else:
        print_facts(_store_facts(told))


def verify(
    store: Store,
    as_json: AsJson = False,
) -> None:
    """Check every byte; exit 0 if sound, else 2.

    Reads every page, mask, task and weight and compares it with what was written.
    """
    from impresslearn.learner.loading import verify_store

    try:
        counts = verify_store(store)
    except (StoreError, InputError) as error:
        if not as_json:
            raise
        line = " ".join(str(error).split())
        print_json({"store": str(store), "sound": False, "error": line})
        raise typer.Exit(2) from None
    if as_json:
        print_json({"store": str(store), "sound": True, **counts})
    else:
        held = ", ".join(counted(counts[f"{thing}s"], thing) for thing in ("task", "mask"))
        say(f"{store} is sound: {held}")


def _show_task(store: Any, name: str, as_json: bool) -> None:
    from impresslearn.learner.loading import open_store
    from impresslearn.report.wording import size

    with open_store(store, readonly=True, progress=False) as learner:
        task = learner.tasks_[name]
        kept = learner.tasks_.learned(name).coefficients
    precision = None if kept is None else kept.precision
    if as_json:
        told = {"labels": list(task.classes), "precision": precision}
        print_json(
            _plain_task(task) | told | {"breakdown": task.breakdown, "history": task.history}
        )
        return
    parts = [f"{part} {size(count)}" for part, count in task.breakdown.items() if count]
    print_facts(
        [
            ("task", task.name),
            ("role", task.role),
            ("classes", f"{len(task.classes)}: {_some(task.classes)}"),
            ("masks", f"{task.num_masks:,}"),
            ("precision", precision),
            ("bytes", f"{task.bytes:,} ({', '.join(parts)})"),
            *_history_facts(task),
        ]
    )


def _history_facts(task: "TaskInfo") -> list[tuple[str, str | None]]:
    metrics = dict(task.history.get("metrics", {}))
    note = metrics.pop("note", None)
    recipe = task.history.get("recipe", {})
    return [
        ("learned at", task.history.get("created_at") or None),
        ("from", _settings(metrics)),
        ("recipe", _settings(recipe)),
        ("note", _settings(note) if isinstance(note, dict) else None),
    ]


def _store_facts(told: dict[str, Any]) -> list[tuple[str, str | None]]:
    from impresslearn.report.wording import size

    network, settings = told["network"], dict(told["settings"])
    recipes = {name: settings.pop(name) for name in list(settings) if name.endswith("_recipe")}
    seeds, stored = told["masks_as_seed"], told["masks"] - told["masks_as_seed"]
    each = told["bytes_a_stored_mask"]
    masks = [f"{stored:,} stored, {size(each)} each"] if stored else []
    masks += [f"{seeds:,} as seeds"] if seeds else []
    spec = network["spec"]
    return [
        ("store", f"{told['path']} ({size(told['file_bytes'])})"),
        ("created", f"{told['created_at']} by impresslearn {told['library_version']}"),
        ("network", f"{network['name']}, {network['parameters']:,} parameters"),
        ("", _settings({k: v for k, v in spec.items() if k != "name"}) if spec else "adapted"),
        ("weights", size(told["weights_bytes"]) if told["weights_bytes"] else "as a seed"),
        ("settings", _settings(settings)),
        *((name.replace("_", " "), _settings(recipe)) for name, recipe in recipes.items()),
        ("masks", f"{told['masks']:,}" + (f" ({'; '.join(masks)})" if masks else "")),
        ("tasks", f"{told['tasks']:,} ({size(told['tasks_bytes'])})"),
    ]


def _plain_task(task: "TaskInfo") -> dict[str, Any]:
    return {
        "task": task.name,
        "role": task.role,
        "classes": len(task.classes),
        "masks": task.num_masks,
        "bytes": task.bytes,
        "learned_at": task.history.get("created_at") or None,
    }


def _row(task: "TaskInfo") -> list[str]:
    *values, learned_at = _plain_task(task).values()
    moment = str(learned_at or "")[:19].replace("T", " ")
    return [*map(str, values), moment]


def _settings(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def _some(labels: tuple[int | str, ...], count: int = 12) -> str:
    shown = ", ".join(map(str, labels[:count]))
    return shown + (", …" if len(labels) > count else "")


for _command in (ls, show, verify, export, compact, rm):
    store.command()(_command)
store.command(name="import")(import_)
