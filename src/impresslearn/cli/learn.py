"""`impresslearn learn`: tasks into a store, which is created where there is none."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from impresslearn.cli import learn_options as options
from impresslearn.cli.arguments import (
    AsJson,
    Device,
    Header,
    LabelColumn,
    Mean,
    Quiet,
    Shape,
    Size,
    Std,
    Store,
    reading_settings,
    settings_of,
)
from impresslearn.cli.output import print_json, remark, say
from impresslearn.errors import ImpressLearnError, InputError

if TYPE_CHECKING:
    from impresslearn.cli.data_files import Reading
    from impresslearn.cli.learn_many import Job, Manner, Outcome
    from impresslearn.learner import ImpressLearner


def learn(
    store: Store,
    data: options.Data = None,
    task: options.Task = None,
    labels: options.Labels = None,
    tasks: options.Tasks = None,
    test: options.Test = None,
    test_labels: options.TestLabels = None,
    basis: options.Basis = False,
    homogeneous: options.Homogeneous = None,
    random_masks: options.RandomMasks = None,
    precision: options.Precision = None,
    epochs: options.Epochs = None,
    min_steps: options.MinSteps = None,
    lr: options.Lr = None,
    batch_size: options.BatchSize = None,
    standardise: options.Standardise = False,
    mean: Mean = None,
    std: Std = None,
    shape: Shape = None,
    size: Size = None,
    label_column: LabelColumn = None,
    header: Header = None,
    backbone: options.Backbone = None,
    network: options.Set = None,
    classes: options.Classes = None,
    norm: options.Norm = None,
    preset: options.Preset = None,
    sparsity: options.Sparsity = None,
    granularity: options.Granularity = None,
    output_scale: options.OutputScale = None,
    seed: options.Seed = None,
    device: Device = "cpu",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn tasks into a store; a new one is created.

    Each task is kept as soon as it is learned, and a task that is there already, learned from the
    same data, is skipped: after an interruption, run the same command again. A new store has no
    masks yet: learn its first tasks with --basis, or give it --random-masks.
    """
    from impresslearn.cli.data_files import Reading
    from impresslearn.cli.learn_many import Manner, prepare_store
    from impresslearn.learner.creation import Founding

    jobs = options.Sources(data, task, labels, tasks, test, test_labels).jobs()
    reading = Reading(**reading_settings(label_column, header, shape, size, mean, std))
    fields = {"epochs": epochs, "min_steps": min_steps, "lr": lr, "batch_size": batch_size}
    recipe = {name: value for name, value in fields.items() if value is not None}
    masks = homogeneous or (1 if basis else None)
    if not store.exists() and masks is None and random_masks is None:
        raise InputError(
            f"{store} is new and has no masks to learn over: learn its first tasks with --basis, "
            "or give it random masks with --random-masks 20"
        )
    manner = Manner(masks, random_masks, standardise, precision, recipe)
    given = Founding(
        backbone, settings_of(network or ()), classes, norm, seed,
        preset, granularity, output_scale, sparsity,
    )  # fmt: skip
    founded = prepare_store(store, jobs, reading, manner, given)
    spoken = not quiet and not as_json
    if founded is not None and spoken:
        say(_created(store, founded))
    outcomes: list[Outcome] = []
    with _telling_what_is_kept(store, len(jobs), outcomes):
        for outcome in _outcomes(store, jobs, reading, manner, device, not quiet):
            outcomes.append(outcome)
            if spoken:
                say(_line(outcome))
    if as_json:
        done = [_plain(outcome) for outcome in outcomes]
        print_json({"store": str(store), "created": founded is not None, "tasks": done})


def _outcomes(
    store: Path, jobs: "list[Job]", reading: "Reading", manner: "Manner", device: str, shown: bool
) -> "Iterator[Outcome]":
    from impresslearn.cli.learn_many import open_for_work, work_through

    with open_for_work(store, manner, device=device, progress=shown) as learner:
        yield from work_through(learner, jobs, reading, manner)


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
    from impresslearn.report.wording import duration, percent, size

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
