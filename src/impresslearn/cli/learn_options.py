"""The options of `impresslearn learn` in groups: the tasks, how they are learned, the new store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from impresslearn.cli.arguments import (
    existing,
    named_paths,
    option_field,
    own_network,
    settings_of,
)
from impresslearn.errors import InputError, MissingDataError

if TYPE_CHECKING:
    from torch import nn

    from impresslearn.learner.creation import CreationSettings
    from impresslearn.networks import Backbone


class DataSet(NamedTuple):
    """A data set by its path; labels: of .npy inputs."""

    path: Path
    labels: Path | None = None


class Job(NamedTuple):
    """A task to learn under a name; test: what its accuracy is measured on."""

    name: str
    train: DataSet
    test: DataSet | None = None


@dataclass(frozen=True)
class DataOptions:
    """Where the examples of tasks come from."""

    heading: ClassVar[str] = "The tasks"
    data: list[str] | None = option_field(
        "[NAME=]PATH",
        "Labelled examples: .npz, .csv, .npy with --labels, or a folder with a sub-folder of "
        "images a class. Repeat it as NAME=PATH for several tasks.",
    )
    task: str | None = option_field("NAME", "The task's name, for a --data without one.")
    labels: Path | None = option_field("PATH", "Labels of --data: .npy, .csv or .txt.")
    tasks: Path | None = option_field(
        "FOLDER", "Instead of --data: each sub-folder, .npz and .csv in it is a task of that name."
    )

    def data_sets(self) -> dict[str, DataSet]:
        """Data sets by task. Raises InputError where the options do not fit together."""
        data = self.data or []
        if bool(data) == (self.tasks is not None):
            raise InputError("give the examples with --data, or a folder of them with --tasks")
        if self.tasks is None:
            found = self._named(data, "--data", self.labels)
        elif self.task is not None:
            raise InputError("with --tasks the names are those of the files; leave out --task")
        else:
            found = data_sets_in(self.tasks)
        if self.labels and (self.tasks is not None or len(found) > 1):
            raise InputError("--labels and --test-labels belong to a single task's data")
        return found

    def _named(self, given: list[str], option: str, labels: Path | None) -> dict[str, DataSet]:
        """Data sets of an option by the names of their tasks."""
        if self.task is None:
            if len(given) == 1 and "=" not in given[0]:
                raise InputError(f"name the task with --task NAME, or with {option} NAME=PATH")
            paths = named_paths(given, option)
        elif len(given) > 1:
            raise InputError(
                "--task names a single task; learn several with --data NAME=PATH, without --task"
            )
        else:
            paths = {self.task: existing(Path(given[0]))} if given else {}
        return {name: DataSet(path, labels) for name, path in paths.items()}


@dataclass(frozen=True)
class TaskOptions(DataOptions):
    """Where the examples of the tasks to learn, and to test them on, come from."""

    test: list[str] | None = option_field(
        "[NAME=]PATH",
        "Report the accuracy on these examples; of several tasks a folder of the same names.",
    )
    test_labels: Path | None = option_field("PATH", "Labels of --test: .npy, .csv or .txt.")

    def jobs(self) -> list[Job]:
        """The tasks to learn. Raises InputError where the options do not fit together."""
        train, tests = self.data_sets(), self.test or []
        alone = len(tests) == 1 and "=" not in tests[0]
        if self.tasks is None and not (alone and len(train) > 1):
            if self.task is None and len(train) == 1 and alone:
                tests = [f"{next(iter(train))}={tests[0]}"]
            test = self._named(tests, "--test", self.test_labels)
            if unknown := [name for name in test if name not in train]:
                raise InputError(f"--test names {unknown[0]!r}, none of the tasks to learn")
        elif len(tests) > 1:
            raise InputError("with --tasks, --test is one folder with files of the same names")
        else:
            test = data_sets_in(Path(tests[0])) if tests else {}
            if tests and not test.keys() & train.keys():
                raise InputError(f"{tests[0]} holds nothing of the name of a task to learn")
        if self.test_labels and (self.tasks is not None or len(train) > 1):
            raise InputError("--labels and --test-labels belong to a single task's data")
        return [Job(name, data, test.get(name)) for name, data in train.items()]


@dataclass(frozen=True)
class TrainingOptions:
    """How tasks are learned: coefficients over the bank, or masks of their own."""

    heading: ClassVar[str] = "Learning"
    basis: bool = option_field(
        None, "Train a mask for each task and add it to the bank.", "--basis", default=False
    )
    homogeneous: int | None = option_field("N", "Train N masks for each task, from N seeds.", min=1)
    random_masks: int | None = option_field(
        "N",
        "See to it that the bank holds N drawn masks, which cost no bytes.",
        "--random-masks",
        "--random-bank",
        min=1,
    )
    mask_source: str = option_field(
        "NAME",
        "How those masks are drawn: random, disjoint or disjoint_kernels.",
        "--mask-source",
        default="random",
    )
    update: bool = option_field(
        None,
        "Learn tasks that are there already further from other data; the versions before are kept. "
        "With --tasks, those whose files changed; new ones are learned.",
        "--update",
        default=False,
    )
    features: bool = option_field(
        None,
        "Afterwards learn, from these tasks' inputs, what readouts see (preset few_labels).",
        "--features",
        default=False,
    )
    precision: str | None = option_field(
        "NAME",
        "Keep coefficients as float32, float16, int8, int5, int4, coded.",
        show_default="the store's",
    )
    bit_price: float | None = option_field(
        "X",
        "With coded coefficients: what a bit of their code costs, in bits of the examples' loss.",
        show_default="the store's",
        min=0,
    )
    max_bytes: str | None = option_field(
        "SIZE",
        "What a learned task may take, as 500 or 2kB; its bit price is raised until it fits.",
        show_default="the store's",
    )
    epochs: float | None = option_field("N", "Passes over the data.", show_default="the preset's")
    min_steps: int | None = option_field(
        "N", "Steps taken even if the epochs have fewer.", show_default="the preset's"
    )
    lr: float | None = option_field("X", "Peak learning rate.", show_default="the preset's")
    batch_size: int | None = option_field("N", "Examples a step.", show_default="the preset's")
    standardise: bool = option_field(
        None,
        "Measure --mean and --std on the data of a new store's first tasks; it keeps them.",
        "--standardise",
        default=False,
    )

    @property
    def masks(self) -> int | None:
        """How many masks each task adds to the bank; None for coefficients only."""
        return self.homogeneous or (1 if self.basis else None)

    @property
    def role(self) -> str:
        """The role of the tasks: "basis" or "learned"."""
        return "learned" if self.masks is None else "basis"

    def settings(self) -> dict[str, Any]:
        """The settings of a learner that were given."""
        from impresslearn.tables import size_of

        most = None if self.max_bytes is None else size_of(self.max_bytes)
        named = {"precision": self.precision, "bit_price": self.bit_price, "max_bytes": most}
        return {name: value for name, value in named.items() if value is not None}

    def recipe(self) -> dict[str, Any]:
        """The fields of a `Recipe` that were given."""
        named = {name: getattr(self, name) for name in ("epochs", "min_steps", "lr", "batch_size")}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class StoreOptions:
    """What a new store is made with; an existing one must agree."""

    heading: ClassVar[str] = "A new store (an existing one must agree)"
    backbone: str | None = option_field(
        "NAME",
        "The network: lenet_300_100, linear, resnet18, resnet20 or resnet50.",
        show_default="lenet_300_100",
    )
    module: str | None = option_field(
        "FILE:FUNCTION",
        "A network of your own in place of --backbone, for every command on the store: FUNCTION() "
        "of FILE.py in this folder returns a module, or what il.adapt makes of it.",
        "--module",
    )
    network: list[str] | None = option_field(
        "KEY=VALUE",
        "A setting of the network, as widths=[500,200]; may be repeated. in_features and "
        "in_channels are taken from the data.",
        "--set",
    )
    classes: int | None = option_field(
        "K", "The network's outputs.", show_default="as many as the data need", min=2
    )
    norm: str | None = option_field(
        "NAME",
        "Norm layers: batch, per_task, shared, group or none.",
        show_default="the network's",
    )
    preset: str | None = option_field(
        "NAME",
        "Settings that belong together: default, few_labels, per_weight, pretrained, paper_lenet.",
        show_default="default",
    )
    sparsity: float | None = option_field(
        "X", "Fraction of zeros in a trained mask, 0 to 1.", show_default="0.9"
    )
    granularity: str | None = option_field(
        "NAME",
        "A coefficient for each mask and layer, or mask and unit, a number for each weight, or a "
        "readout: layer, unit, weight, readout.",
        show_default="layer",
    )
    output_scale: bool | None = option_field(
        None, "Learn a scale for each output unit too.", "--output-scale/--no-output-scale"
    )
    seed: int | None = option_field("N", "Of everything that is drawn.", show_default="0", min=0)

    def settings(self) -> CreationSettings:
        """The settings that a store keeps."""
        from impresslearn.learner.creation import CreationSettings

        given = {key: value for key, value in vars(self).items() if key != "module"}
        return CreationSettings(**given | {"network": settings_of(self.network or ())})

    def own_network(self) -> Backbone | nn.Module | None:
        """The user's network. Raises InputError for settings that its function should have."""
        for name in ("backbone", "network", "classes", "norm") if self.module else ():
            if getattr(self, name) is not None:
                option = "set" if name == "network" else name
                line = f"--{option} is not for --module; its function may return il.adapt(…) itself"
                raise InputError(line)
        return own_network(self.module)


def data_sets_in(folder: Path) -> dict[str, DataSet]:
    """The data sets of a folder, sorted by name: its sub-folders, its .npz and its .csv files.

    Each is named after the file, without the suffix. Other and hidden files are left out. Raises
    MissingDataError for no folder, InputError for none in it and for two of one name.
    """
    if not folder.is_dir():
        raise MissingDataError(f"there is no folder {folder}")
    found: dict[str, DataSet] = {}
    for path in sorted(folder.iterdir()):
        is_task = path.is_dir() or path.suffix.lower() in (".npz", ".csv")
        if path.name.startswith(".") or not is_task:
            continue
        name = path.name if path.is_dir() else path.stem
        if name in found:
            raise InputError(f"{found[name].path} and {path} would both be task {name!r}")
        found[name] = DataSet(path)
    if not found:
        raise InputError(f"{folder} holds no task; expected sub-folders of images, .npz or .csv")
    return found
