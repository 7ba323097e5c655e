"""`impresslearn learn`: tasks into a store, which is created where there is none."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from impresslearn.cli.arguments import AsJson, Device, FileOptions, Quiet, Store, option_groups
from impresslearn.cli.learn_options import StoreOptions, TaskOptions, TrainingOptions
from impresslearn.cli.output import print_json, remark, say
from impresslearn.errors import ImpressLearnError

if TYPE_CHECKING:
    from impresslearn.cli.learn_many import Outcome
    from impresslearn.learner import ImpressLearner


@option_groups
def learn(
    store: Store,
    sources: TaskOptions,
    training: TrainingOptions,
    files: FileOptions,
    new: StoreOptions,
    device: Device = "cpu",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn tasks into a store; a new one is created.

    Each task is kept as soon as it is learned, and a task that is there already, learned from the
    same data, is skipped: after an interruption, run the same command again. A new store has no
    masks yet: learn its first tasks with --basis, or give it --random-masks.
    """
    from impresslearn.cli.learn_many import learn_jobs, open_for_learning, prepare_store

    jobs, given = sources.jobs(), files.reader()
    created = prepare_store(store, jobs, given, training, new.settings())
    spoken = not quiet and not as_json
    if created is not None and spoken:
        say(_created(store, created))
    outcomes: list[Outcome] = []
    with (
        _telling_what_is_kept(store, len(jobs), outcomes),
        open_for_learning(store, training, device=device, progress=not quiet) as learner,
    ):
        for outcome in learn_jobs(learner, jobs, given, training):
            outcomes.append(outcome)
            if spoken:
                say(_line(outcome))
    if as_json:
        done = [_plain(outcome) for outcome in outcomes]
        print_json({"store": str(store), "created": created is not None, "tasks": done})


@contextmanager
def _telling_what_is_kept(store: Path, jobs: int, done: "list[Outcome]") -> Iterator[None]:
    """Says on an interruption or error what was not lost."""
    try:
        yield
    except (KeyboardInterrupt, ImpressLearnError) as error:
        if done or isinstance(error, KeyboardInterrupt):
            remark(
                f"{len(done)} of {jobs} tasks are kept in {store}; "
                "run the same command again to carry on"
            )
        raise


def _created(store: Path, learner: "ImpressLearner") -> str:
    backbone = learner.backbone
    shape = backbone.input_shape
    sizes = "" if shape is None else "x".join("*" if size is None else str(size) for size in shape)
    taken = f" for {sizes} inputs" if sizes else ""
    return (
        f"created {store}: {backbone.name}{taken}, {backbone.num_classes} outputs, "
        f"{backbone.num_maskable:,} weights"
    )


def _line(outcome: "Outcome") -> str:
    """What became of a task, for a person."""
    from impresslearn.report.quantities import duration, percent, size

    told = _plain(outcome)
    line = f"{told['task']}: {told['status']}"
    if outcome.learned:
        line += f" in {duration(told['seconds'])} from {told['examples']:,} examples"
    line += f", {told['classes']} classes, {size(told['bytes'])}"
    if outcome.accuracy is not None:
        line += f", accuracy {percent(outcome.accuracy)}"
    if outcome.unrounded_accuracy is not None:
        line += f" (float32: {percent(outcome.unrounded_accuracy)})"
    return line


def _plain(outcome: "Outcome") -> dict[str, Any]:
    """What became of a task, for a machine."""
    task = outcome.task
    metrics = task.history.get("metrics", {})
    return {
        "task": task.name,
        "status": "learned" if outcome.learned else "already learned",
        "role": task.role,
        "classes": len(task.classes),
        "bytes": task.bytes,
        "examples": metrics.get("examples"),
        "seconds": metrics.get("seconds"),
        "accuracy": outcome.accuracy,
        "float32_accuracy": outcome.unrounded_accuracy,
    }
