"""The options of `impresslearn learn`, and what they say about the work and the store."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from impresslearn.cli.arguments import existing, named_paths
from impresslearn.errors import InputError

if TYPE_CHECKING:
    from impresslearn.cli.learn_many import Job

Data = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME=]PATH",
        help="Labelled examples: .npz, .csv, .npy with --labels, or a folder with a sub-folder of "
        "images a class. Repeat it as NAME=PATH to learn several tasks.",
    ),
]
Task = Annotated[
    str | None, typer.Option(metavar="NAME", help="The task's name, for a --data without one.")
]
Tasks = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Instead of --data: each sub-folder, .npz and .csv in it is a task of that name.",
    ),
]
Labels = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Labels of --data: .npy, .csv or .txt.")
]
Test = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME=]PATH",
        help="Report the accuracy on these examples; with --tasks a folder of the same names.",
    ),
]
TestLabels = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Labels of --test: .npy, .csv or .txt.")
]
Basis = Annotated[
    bool, typer.Option("--basis", help="Train a mask for each task and add it to the bank.")
]
Homogeneous = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Train N masks for each task, from N seeds."),
]
RandomMasks = Annotated[
    int | None,
    typer.Option(
        "--random-masks",
        "--random-bank",
        min=1,
        metavar="N",
        help="See to it that the bank holds N random masks, which cost no bytes.",
    ),
]
Standardise = Annotated[
    bool,
    typer.Option(
        "--standardise",
        help="Measure --mean and --std on the first task's data; the store keeps them.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Keep coefficients as float32, float16, int8, int5, int4, coded."
    ),
]
Epochs = Annotated[float | None, typer.Option(metavar="N", help="Passes over the data.")]
MinSteps = Annotated[
    int | None, typer.Option(metavar="N", help="Steps taken even if the epochs have fewer.")
]
Lr = Annotated[float | None, typer.Option(metavar="X", help="Peak learning rate.")]
BatchSize = Annotated[int | None, typer.Option(metavar="N", help="Examples a step.")]

Backbone = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="New store: the network, lenet_300_100 (default), resnet18, resnet50."
    ),
]
Classes = Annotated[
    int | None,
    typer.Option(
        metavar="K", min=2, help="New store: the network's outputs; by default as the data need."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="New store: a setting of the network, as widths=[500,200]; may be repeated. "
        "in_features and in_channels are taken from the data.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="New store: settings that belong together; default."),
]
Norm = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="New store: batch, per_task, shared, group or none."),
]
Seed = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="New store: of everything that is drawn.")
]
Granularity = Annotated[
    str | None,
    typer.Option(metavar="layer|unit", help="New store: a coefficient per mask and layer or unit."),
]
OutputScale = Annotated[
    bool | None,
    typer.Option(
        "--output-scale/--no-output-scale", help="New store: learn a scale per output unit too."
    ),
]
Sparsity = Annotated[
    float | None, typer.Option(metavar="X", help="New store: fraction of zeros in a mask, 0 to 1.")
]


@dataclass(frozen=True)
class Sources:
    """Where the examples of one run come from, as they were given."""

    data: list[str] | None
    task: str | None
    labels: Path | None
    tasks: Path | None
    test: list[str] | None
    test_labels: Path | None

    def jobs(self) -> "list[Job]":
        """The tasks to learn. Raises InputError where the options do not fit together."""
        if (self.data is None) == (self.tasks is None):
            raise InputError("give the examples with --data, or a folder of them with --tasks")
        if self.tasks is not None:
            return self._jobs_of_folder(self.tasks)
        if self.task is None:
            return self._named_jobs(self.data or [])
        return [self._single_job(self.data or [], self.task)]

    def _single_job(self, data: list[str], task: str) -> "Job":
        from impresslearn.cli.learn_many import DataSet, Job

        if len(data) > 1 or len(self.test or ()) > 1:
            raise InputError(
                "--task names a single task; learn several with --data NAME=PATH, without --task"
            )
        train = DataSet(existing(Path(data[0])), self.labels)
        test = DataSet(existing(Path(self.test[0])), self.test_labels) if self.test else None
        return Job(task, train, test)

    def _named_jobs(self, data: list[str]) -> "list[Job]":
        from impresslearn.cli.learn_many import DataSet, Job

        if len(data) == 1 and "=" not in data[0]:
            raise InputError("name the task with --task NAME, or with --data NAME=PATH")
        train = named_paths(data, "--data")
        test = named_paths(self.test or (), "--test")
        self._refuse_labels(len(train) > 1)
        unknown = [name for name in test if name not in train]
        if unknown:
            raise InputError(f"--test names {unknown[0]!r}, which is none of the tasks to learn")
        return [
            Job(
                name,
                DataSet(path, self.labels),
                DataSet(test[name], self.test_labels) if name in test else None,
            )
            for name, path in train.items()
        ]

    def _jobs_of_folder(self, folder: Path) -> "list[Job]":
        from impresslearn.cli.learn_many import Job, data_sets_in

        if self.task is not None:
            raise InputError("with --tasks the names are those of the files; leave out --task")
        if len(self.test or ()) > 1:
            raise InputError("with --tasks, --test is one folder with files of the same names")
        self._refuse_labels(True)
        test = data_sets_in(Path(self.test[0])) if self.test else {}
        train = data_sets_in(folder)
        return [Job(name, data, test.get(name)) for name, data in train.items()]

    def _refuse_labels(self, several: bool) -> None:
        if several and (self.labels is not None or self.test_labels is not None):
            raise InputError("--labels and --test-labels belong to a single task's data")
