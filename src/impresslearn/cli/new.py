"""`impresslearn new` and `advise`: an empty store for tasks like yours, and its best settings."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from impresslearn.cli import shared
from impresslearn.cli.shared import Data, LabelColumn, Module, Store, echo, option
from impresslearn.errors import InputError, error_prefix, print_line

if TYPE_CHECKING:
    from impresslearn.data import Examples, Preprocessing, StreamedExamples
    from impresslearn.networks import Backbone

PLACEHOLDER = "STORE.impress"

Standardise = Annotated[
    bool, option(None, "Scale all inputs by the mean and deviation of DATA.", "--standardise")
]
Prepare = Annotated[
    list[str] | None,
    option(
        "KEY=VALUE",
        "How inputs are prepared, a setting of il.Preprocessing: size=224, mean=[0.5,0.4,0.4], "
        "shape=[1,28,28]. May be repeated.",
    ),
]


def new(
    store: Store,
    data: Data,
    backbone: Annotated[
        str, option("NAME", "The network: lenet_300_100, linear, resnet18, resnet20, resnet50.")
    ] = "lenet_300_100",
    network: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE",
            "A setting of the network, or of il.adapt for your own: num_classes=10, "
            "widths=[500,200], head=shared. May be repeated.",
        ),
    ] = None,
    module: Module = None,
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
    from impresslearn.learner.advice import sizes_of
    from impresslearn.learner.loading import create_learner
    from impresslearn.learner.presets import LearnerSettings

    if store.exists():
        raise typer.BadParameter(f"{store} exists already; choose another name")
    settings = shared.settings_of(set_, "--set", [*LearnerSettings.__dataclass_fields__, "recipe"])
    network_settings = shared.settings_of(network, "--network")
    tasks, preprocessing = read_typical(shared.task_paths(data), standardise, prepare, label_column)
    shape, classes = sizes_of(tasks, preprocessing)
    learner = create_learner(
        shape,
        classes,
        preset=preset,
        backbone=adapted(module, shape, network_settings) or backbone,
        network=network_settings,
        preprocessing=preprocessing,
        **settings,
    )
    if masks:
        with error_prefix("--mask-source"):
            learner.add_masks(masks, source=mask_source)
    learner.save(store)
    made = learner.backbone
    outputs = f"{made.num_classes} outputs" if made.most_classes else "a head for each task"
    echo(f"created {store}: {made.name}, {outputs}, {made.num_maskable:,} weights")
    needs_masks = learner.settings.granularity not in ("weight", "readout")
    if needs_masks and not learner.settings.staged and not len(learner.bank_):
        line = "the bank is empty: give `new` --masks 20, or learn the first tasks with --basis"
        print_line(line)


def advise(
    data: Data,
    budget: Annotated[
        list[int] | None,
        option("N", "Bytes per task. May be repeated; by default 150 to 2,000.", min=1),
    ] = None,
    max_seconds: Annotated[
        float, option("SECONDS", "Stop after this time; the best trials so far count.", min=0)
    ] = 300.0,
    standardise: Standardise = False,
    prepare: Prepare = None,
    label_column: LabelColumn = None,
    module: Module = None,
) -> None:
    """Show how accurate tasks like DATA become in how many bytes.

    Give at least two tasks that are typical of yours. Each method learns them and is scored on
    examples that are held back. The last lines are the commands that make a store with the
    recommended settings and learn DATA.

    Example: impresslearn advise pilot/*.csv --budget 300 --budget 1000
    """
    from impresslearn.learner import advise as find_advice
    from impresslearn.learner.advice import BUDGETS, sizes_of

    paths = shared.task_paths(data)
    tasks, preprocessing = read_typical(paths, standardise, prepare, label_column)
    advice = find_advice(
        tasks,
        adapted(module, sizes_of(tasks, preprocessing)[0], {}),
        budgets=budget or BUDGETS,
        max_seconds=max_seconds,
        preprocessing=preprocessing,
    )
    for line in repr(advice).splitlines():
        echo(line)
    echo()
    method, both = advice.best.candidate, []
    for name, value in (("--label-column", label_column), ("--module", module)):
        both += [name, value] if value else []
    options = ["--standardise"] if standardise else []
    for setting in prepare or ():
        options += ["--prepare", setting]
    options += ["--preset", advice.preset]
    if method.backbone:
        options += ["--backbone", method.backbone]
    for key, value in advice.settings.items():
        options += ["--set", f"{key}={value}"]
    if method.masks:
        options += ["--masks", str(method.masks), "--mask-source", "disjoint"]
    shared.echo_command(["impresslearn", "new", PLACEHOLDER, *data, *options, *both])
    basis = [
        str(path) if name in shared.task_paths([str(path)]) else f"{name}={path}"
        for name, path in paths.items()
        if name in advice.basis
    ]
    if basis:
        features = ["--features"] if method.features else []
        learn_basis = ["impresslearn", "learn", PLACEHOLDER, *basis, "--basis", *features]
        shared.echo_command([*learn_basis, *both])
    # `learn` skips basis tasks that the command above has learned from the same data.
    shared.echo_command(["impresslearn", "learn", PLACEHOLDER, *data, *both])


def read_typical(
    paths: dict[str, Path], standardise: bool, prepare: list[str] | None, label_column: str | None
) -> "tuple[dict[str, Examples | StreamedExamples], Preprocessing | None]":
    """The raw examples of tasks, and a preprocessing for them and for later tasks like them."""
    import numpy as np
    import torch

    from impresslearn.data import Examples, Preprocessing
    from impresslearn.data.examples import Inputs, check_levels, one_tensor
    from impresslearn.data.file_reader import FileReader
    from impresslearn.networks.inputs import some_inputs, unusual_scale

    settings = shared.settings_of(prepare, "--prepare", Preprocessing.__dataclass_fields__)
    reader = FileReader(label_column, Preprocessing(**settings))
    tasks: dict[str, Examples | StreamedExamples] = {}
    for name, path in paths.items():
        tasks[name] = reader.examples(path)
        # The first table with named columns sets their order for all others.
        if reader.layout.columns is None and (columns := getattr(tasks[name], "columns", ())):
            reader.layout = replace(reader.layout, columns=columns)
    typical = next(iter(tasks.values()))
    if not (standardise or prepare) and isinstance(some_inputs(typical, 1), Inputs):
        return tasks, None  # a preprocessing takes one tensor
    check_levels(getattr(typical, "inputs", None), typical.pixels and "pixels" not in settings)
    settings = {"pixels": typical.pixels, "columns": reader.layout.columns} | settings
    if standardise:
        # 1,000 rows of every task: a column that hardly varies in one task may vary in others.
        samples = [one_tensor(some_inputs(task, 1000)) for task in tasks.values()]
        shapes = sorted({tuple(sample.shape[1:]) for sample in samples})
        if len(shapes) > 1:
            raise InputError(f"tasks need inputs of one shape, got {shapes[0]} and {shapes[-1]}")
        inputs = torch.cat(samples)
        pooled = Examples(inputs, np.zeros(len(inputs)), pixels=typical.pixels)
        return tasks, Preprocessing.standardising(pooled, **settings)
    preprocessing = Preprocessing(**settings)
    if not preprocessing.normalises and (line := unusual_scale(typical)):
        print_line(f"warning: {line}; networks are likely to learn them better with --standardise")
    return tasks, preprocessing


def adapted(module: str | None, shape: Any, settings: dict[str, Any]) -> "Backbone | None":
    """The user's module as a backbone for inputs of this shape; None without a module."""
    from impresslearn.networks import adapt

    network = shared.load_module(module)
    given: dict[str, Any] = {"input_shape": shape or None, **settings}  # text has the shape ()
    return None if network is None else adapt(network, **given)
