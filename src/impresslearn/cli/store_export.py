"""`impresslearn store export`: tasks as a smaller store, or one as an ordinary model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from impresslearn.cli.arguments import (
    AsJson,
    FileOptions,
    Only,
    OwnNetwork,
    Store,
    existing,
    named_paths,
    option,
    option_groups,
    own_module,
)
from impresslearn.cli.data_files import kept_inputs, reader_for
from impresslearn.cli.output import counted, echo, info, print_result, print_table
from impresslearn.errors import InputError
from impresslearn.tables import percent, size

if TYPE_CHECKING:
    from impresslearn.data.files import FileReader
    from impresslearn.learner import ImpressLearner
    from impresslearn.learner.rounding import Rounding

SUFFIX = ".impress"


@option_groups
def export(
    store: Store,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help=".impress: a new store; .safetensors, .onnx, .pt2: one task."
        ),
    ],
    files: FileOptions,
    task: Only = None,
    precision: Annotated[
        str | None, option("NAME", "Round coefficients to float16, int8, int5, int4, coded.")
    ] = None,
    data: Annotated[
        list[str] | None,
        option("NAME=PATH", "With --precision: report a task's accuracy on these examples."),
    ] = None,
    example: Annotated[
        Path | None, option("PATH", "Inputs of the size that .onnx or .pt2 is made for.")
    ] = None,
    module: OwnNetwork = None,
    overwrite: Annotated[bool, option(None, "Replace OUT.", "--overwrite")] = False,
    as_json: AsJson = False,
) -> None:
    """Write tasks to a new store, or one as a model.

    The suffix of OUT decides. A model file needs no part of this library. --precision rounds what
    is written; the store itself is left alone.

    Example: impresslearn store export shops.impress oslo.onnx --task oslo
    """
    from impresslearn.learner.loading import open_store
    from impresslearn.learner.rounding import rounded

    _check(store, out, example, overwrite)
    if data and precision is None:
        raise InputError("--data measures what --precision changes; give both")
    given, kept_as_store = files.reader(), out.suffix.lower() == SUFFIX
    changes: tuple[Rounding, ...] = ()
    with open_store(store, module=own_module(module), readonly=True, progress=False) as learner:
        names = list(dict.fromkeys(task)) if task else list(learner.tasks_)
        if not kept_as_store and len(names) != 1:
            raise InputError(f"{out} takes one task of {len(names)}; name it with --task")
        written = learner
        if precision is not None:
            examples = {
                name: reader_for(learner, given, path, learner.tasks_[name]).examples(path)
                for name, path in named_paths(data or (), "--data").items()
            }
            result = rounded(learner, precision, examples)
            written, changes = result.learner, result.changes
        if kept_as_store:
            written.save(out, tasks=names if task else None, overwrite=overwrite)
        else:
            _export_task(written, out, names[0], example, given)
    told = [vars(change) for change in changes if change.task in set(names)]
    if told and not as_json:
        _print_changes(told)
    line = f"{out}: {counted(len(names), 'task')}, {out.stat().st_size:,} bytes"
    print_result(as_json, {"out": str(out), "tasks": names, "rounding": told}, line)


def _check(store: Path, out: Path, example: Path | None, overwrite: bool) -> None:
    """Says before the work what would fail after it."""
    from impresslearn.export import FORMATS

    suffixes = (SUFFIX, *(f".{each}" for each in FORMATS))
    if out.suffix.lower() not in suffixes:
        raise InputError(f"OUT must end in {', '.join(suffixes)}, got {out}")
    if out.exists() and store.exists() and out.samefile(store):
        raise InputError(f"{out} is the store itself; name another file")
    if out.exists() and not overwrite:
        raise InputError(f"{out} exists already; choose another name or pass --overwrite")
    if example is not None:
        existing(example)


def _export_task(
    learner: "ImpressLearner", out: Path, name: str, example: Path | None, given: "FileReader"
) -> None:
    from impresslearn.export import export_task

    task, inputs = learner.tasks_[name], None
    if example is not None:
        inputs = reader_for(learner, given, example, task).inputs(example).inputs
    export_task(learner.task_model(name), out, example=inputs)
    kept = kept_inputs(learner, task)
    if how := ", ".join(f"{key} {kept[key]}" for key in ("mean", "std") if key in kept):
        info(f"the file does not normalise: take inputs as the task was learned from, {how}")


def _print_changes(changes: list[dict[str, Any]]) -> None:
    rows = [
        [
            each["task"],
            *(size(each[f"bytes_{when}"]) for when in ("before", "after")),
            *(percent(each[f"accuracy_{when}"]) for when in ("before", "after")),
        ]
        for each in changes
        if each["accuracy_before"] is not None
    ]
    if rows:
        headings = ("task", "bytes before", "after", "accuracy before", "after")
        print_table(headings, rows, right=headings[1:])
    before, after = (sum(each[f"bytes_{when}"] for each in changes) for when in ("before", "after"))
    echo(f"all tasks: {size(before)} before, {size(after)} now")
