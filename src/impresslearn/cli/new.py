"""`impresslearn new` and `advise`: an empty store for tasks like yours, and its best settings."""

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from impresslearn.cli.arguments import (
    Data,
    LabelColumn,
    Module,
    Prepare,
    Quiet,
    Standardise,
    Store,
    option,
    own_network,
    settings_of,
    task_paths,
)
from impresslearn.cli.output import echo, info
from impresslearn.errors import InputError

if TYPE_CHECKING:
    from impresslearn.data import Examples, Preprocessing, StreamedExamples
    from impresslearn.learner import Advice
    from impresslearn.networks import Backbone

ROWS_PER_TASK = 1000
"""Rows of each task that mean and deviation are measured on."""
PLACEHOLDER = "STORE.impress"


def new(
    store: Store,
    data: Data,
    backbone: Annotated[
        str, option("NAME", "The network: lenet_300_100, linear, resnet18, resnet20, resnet50.")
    ] = "lenet_300_100",
    network: Annotated[
        list[str] | None,
        option("KEY=VALUE", "A setting of the network: widths=[500,200]. May be repeated."),
    ] = None,
    module: Module = None,
    classes: Annotated[
        int | None,
        option("K", "Most classes of a task.", show_default="the most in DATA", min=2),
    ] = None,
    preset: Annotated[
        str, option("NAME", "Settings that belong together, a name of il.list_presets().")
    ] = "default",
    set_: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE",
            "A setting of il.ImpressLearner: sparsity=0.8, precision=coded, "
            'recipe={"epochs":3}. May be repeated.',
            "--set",
        ),
    ] = None,
    masks: Annotated[int, option("N", "Start with N drawn masks, which cost no bytes.", min=0)] = 0,
    mask_source: Annotated[
        str, option("NAME", "How they are drawn: random, disjoint or disjoint_kernels.")
    ] = "random",
    standardise: Standardise = False,
    prepare: Prepare = None,
    label_column: LabelColumn = None,
) -> None:
    """Make an empty store for tasks like DATA.

    The store takes the shape of the inputs, the number of classes and the column names from DATA.
    It learns nothing yet: use `learn`. A task that mixes masks needs some: draw them here with
    --masks, or train them on your first tasks with `learn --basis`.

    Example: impresslearn new shops.impress shops/*.csv --preset per_weight
    """
    from impresslearn.data import classes_of
    from impresslearn.learner import create_learner

    if store.exists():
        raise typer.BadParameter(f"{store} exists already; choose another name")
    settings = settings_of(set_, "--set")
    tasks, preprocessing = read_typical(task_paths(data), standardise, prepare, label_column)
    most_classes = max(len(classes_of(task.labels)) for task in tasks.values())
    shape = input_shape(next(iter(tasks.values())))
    learner = create_learner(
        shape,
        classes or most_classes,
        preset=preset,
        backbone=network_for(module, shape) or backbone,
        network=settings_of(network, "--network"),
        preprocessing=preprocessing,
        **settings,
    )
    if masks:
        learner.add_masks(masks, source=mask_source)
    learner.save(store)
    made = learner.backbone
    outputs = f"{made.num_classes} outputs" if made.most_classes else "a head for each task"
    echo(f"created {store}: {made.name}, {outputs}, {made.num_maskable:,} weights")
    if learner.settings.granularity != "weight" and not len(learner.bank_):
        info("the bank is empty: give `new` --masks 20, or learn the first tasks with --basis")


def advise(
    data: Data,
    budget: Annotated[str, option("SIZE", "Most bytes per task: 500, 2kB.")] = "2kB",
    max_seconds: Annotated[
        float, option("SECONDS", "Stop after this time; the best trial so far wins.", min=0)
    ] = 300.0,
    standardise: Standardise = False,
    prepare: Prepare = None,
    label_column: LabelColumn = None,
    module: Module = None,
    quiet: Quiet = False,
) -> None:
    """Find the settings that fit tasks like DATA best.

    Give at least two tasks that are typical of yours. Each method learns them and is scored on
    examples that are held back. The last lines are the commands that make a store with the best
    settings and learn DATA.

    Example: impresslearn advise pilot/*.csv --budget 500
    """
    from impresslearn.learner import advise as find_advice
    from impresslearn.tables import size_of

    paths = task_paths(data)
    tasks, preprocessing = read_typical(paths, standardise, prepare, label_column)
    advice = find_advice(
        tasks,
        network_for(module, input_shape(next(iter(tasks.values())))),
        max_bytes=size_of(budget),
        max_seconds=max_seconds,
        preprocessing=preprocessing,
        progress=not quiet,
    )
    for line in repr(advice).splitlines():
        echo(line)
    echo()
    shared = ["--label-column", label_column] if label_column else []
    shared += ["--module", module] if module else []
    new = ["--standardise"] if standardise else []
    for setting in prepare or ():
        new += ["--prepare", setting]
    for command in _commands(advice, data, list(paths), new, shared):
        echo(shlex.join(["impresslearn", *command]))


def _commands(
    advice: "Advice", data: list[str], names: list[str], new: list[str], shared: list[str]
) -> list[list[str]]:
    """The arguments of the commands that make the store, learn its basis and then the rest."""
    method = advice.best.candidate
    make = ["new", PLACEHOLDER, *data, "--preset", advice.preset, *new, *shared]
    if method.backbone:
        make += ["--backbone", method.backbone]
    for key, value in advice.settings.items():
        make += ["--set", f"{key}={value}"]
    if method.masks:
        make += ["--masks", str(method.masks), "--mask-source", "disjoint"]
    basis = [text for text, name in zip(data, names, strict=True) if name in advice.basis]
    rest = [text for text, name in zip(data, names, strict=True) if name not in advice.basis]
    commands = [make]
    if basis:
        features = ["--features"] if method.features else []
        commands.append(["learn", PLACEHOLDER, *basis, "--basis", *features, *shared])
    commands.append(["learn", PLACEHOLDER, *rest, *shared])
    return commands


def read_typical(
    paths: dict[str, Path],
    standardise: bool,
    prepare: list[str] | None,
    label_column: str | None,
) -> "tuple[dict[str, Examples | StreamedExamples], Preprocessing]":
    """The raw examples of tasks, and the preprocessing for them and for all tasks like them."""
    from impresslearn.data import Preprocessing
    from impresslearn.data.file_reader import FileReader
    from impresslearn.networks.inputs import unusual_scale

    settings = settings_of(prepare, "--prepare")
    checked = Preprocessing(**settings)
    reader = FileReader(label_column, checked.shape, checked.size)
    columns = None
    tasks: dict[str, Examples | StreamedExamples] = {}
    for name, path in paths.items():
        # The first table with named columns sets their order for all others.
        columns = columns or reader.column_names(path)
        tasks[name] = replace(reader, columns=columns).examples(path)
    first = next(iter(tasks.values()))
    settings = {"pixels": first.pixels, "columns": columns} | settings
    if standardise:
        sample = _sample(tasks.values(), first.pixels)
        return tasks, Preprocessing.standardising(sample, **settings)
    preprocessing = Preprocessing(**settings)
    line = None if preprocessing.normalises else unusual_scale(first)
    if line:
        info(f"warning: {line}; networks are likely to learn them better with --standardise")
    return tasks, preprocessing


def input_shape(examples: "Examples | StreamedExamples") -> Any:
    """The shape of one input."""
    import numpy as np

    return examples.inputs_at(np.array([0]))[0].shape  # type: ignore[union-attr]  # one tensor


def network_for(module: str | None, shape: Any) -> "Backbone | None":
    """The user's own network for inputs of this shape; None without one."""
    from torch import nn

    from impresslearn.networks import adapt

    network = own_network(module)
    return adapt(network, input_shape=shape) if isinstance(network, nn.Module) else network


def _sample(tasks: "Iterable[Examples | StreamedExamples]", pixels: bool) -> "Examples":
    """Rows spread over all tasks: a column that hardly varies in one task may vary in others."""
    import numpy as np
    import torch

    from impresslearn.data import Examples
    from impresslearn.data.examples import one_tensor

    samples = []
    for task in tasks:
        count = min(len(task), ROWS_PER_TASK)
        rows = np.linspace(0, len(task) - 1, count).astype(int)
        samples.append(one_tensor(task.inputs_at(rows)))
    shapes = {tuple(sample.shape[1:]) for sample in samples}
    if len(shapes) > 1:
        raise InputError(f"DATA have inputs of different shapes: {sorted(shapes)[:3]}")
    inputs = torch.cat(samples)
    return Examples(inputs, np.zeros(len(inputs)), pixels=pixels)
