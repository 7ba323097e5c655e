"""The demo's results: checked, turned into a record, shown as a page and in the terminal.

Accuracies are fractions. Those of the baselines, and every number of the summary, may be None where
they were not measured.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator
from typing_extensions import Self

from impresslearn.errors import visible_within
from impresslearn.report.checking import naming
from impresslearn.report.page import page
from impresslearn.report.records import FORMAT, Record, parse_record
from impresslearn.report.tables import Cells, printable
from impresslearn.report.wording import duration, percent, points, size, times

if TYPE_CHECKING:
    from rich.table import Table

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Fraction = Annotated[Number, Field(ge=0, le=1)]


class Task(BaseModel):
    """A task of the demo under the three methods."""

    name: str
    role: Literal["basis", "new"]
    accuracy: Fraction
    supsup_accuracy: Fraction | None
    single_mask_accuracy: Fraction | None
    bytes: Annotated[Number, Field(ge=0)]


class Means(BaseModel):
    """The numbers of the whole demo."""

    new_task_accuracy: Number | None
    supsup_accuracy: Number | None
    single_mask_accuracy: Number | None
    forgetting: Number | None
    bytes_per_new_task: Number | None
    bytes_per_supsup_mask: Number | None
    task_inference_accuracy: Number | None
    seconds: Number | None


class Coefficients(BaseModel):
    """values: for each task, for each mask, a coefficient a layer."""

    masks: list[str]
    layers: list[str]
    tasks: list[str]
    values: list[list[list[Number]]]

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        axes = (self.tasks, self.masks, self.layers)
        if any(len(set(axis)) < len(axis) for axis in axes):
            raise ValueError("tasks, masks and layers must be distinct names")
        shape = tuple(map(len, axes))
        lengths = {(len(of), len(each)) for of in self.values for each in of}
        if len(self.values) != shape[0] or lengths - {shape[1:]}:
            raise ValueError(f"values must be numbers of shape {shape}")
        return self


class DemoResults(BaseModel):
    """What the demo measured."""

    tasks: list[Task] = Field(min_length=1)
    summary: Means
    coefficients: Coefficients
    settings: dict[str, Any]
    versions: dict[str, Any]


def check_demo_record(results: Mapping[str, Any]) -> DemoResults:
    """The checked results, basis tasks first. Raises InputError, naming the place, if unusable."""
    with naming("unusable result record"):
        checked = DemoResults.model_validate(visible_within(results))
    checked.tasks.sort(key=lambda task: task.role)
    return checked


def write_demo_report(results: Mapping[str, Any], path: Path) -> None:
    """Write the demo's results to `path` as one self-contained HTML file of about 1 MB.

    Raises InputError if the record lacks something, OSError if the file cannot be written.
    """
    checked = check_demo_record(results)
    basis = sum(task.role == "basis" for task in checked.tasks)
    lead = (
        f"{basis} basis tasks with a mask each, then {len(checked.tasks) - basis} new tasks that "
        "cost a handful of coefficients, over one frozen random network."
    )
    text = page("ImpressLearn demo", lead, [_record(checked)], _tiles(checked.summary))
    Path(path).write_bytes(text.encode())


def tasks_table(results: Mapping[str, Any]) -> "Table":
    """One row a task, basis tasks first, then the mean over new tasks; print it with rich.

    Raises InputError if the record lacks something.
    """
    return printable(_table(check_demo_record(results)))


def _table(results: DemoResults) -> Cells:
    means = results.summary
    of_tasks = [
        (t.name, t.role, t.accuracy, t.supsup_accuracy, t.single_mask_accuracy, t.bytes)
        for t in results.tasks
    ]
    over = (means.new_task_accuracy, means.supsup_accuracy, means.single_mask_accuracy)
    every = [*of_tasks, ("mean over new tasks", "", *over, means.bytes_per_new_task)]
    note = (
        f"forgetting {points(means.forgetting)}",
        f"a SupSup mask takes {size(means.bytes_per_supsup_mask)}",
        f"task inference {percent(means.task_inference_accuracy)}",
        duration(means.seconds),
    )
    return Cells(
        title="All tasks",
        note=" · ".join(note),
        header=("Task", "Role", "ImpressLearn", "SupSup", "Single mask", "Bytes"),
        rows=tuple((n, r, *map(percent, three), size(b)) for n, r, *three, b in every),
        numeric=(False, False, True, True, True, True),
    )


def _tiles(means: Means) -> list[tuple[str, str, str]]:
    ratio = times(means.bytes_per_supsup_mask, means.bytes_per_new_task)
    larger = f"{ratio} a new task" if ratio else "the same network"
    inference = percent(means.task_inference_accuracy)
    return [
        ("New-task accuracy", percent(means.new_task_accuracy), "mean over the new tasks"),
        ("SupSup", percent(means.supsup_accuracy), "a dedicated mask for each task"),
        ("Single foreign mask (X)", percent(means.single_mask_accuracy), "of another task, as is"),
        ("Forgetting", points(means.forgetting), "accuracy that earlier tasks lost"),
        ("Bytes per new task", size(means.bytes_per_new_task), "everything that is kept for it"),
        ("Bytes per SupSup mask", size(means.bytes_per_supsup_mask), larger),
        ("Task inference", inference, "right task, identity not given"),
        ("Time", duration(means.seconds), "for everything on this page"),
    ]


def _record(results: DemoResults) -> Record:
    """The results as a record, so that the demo is drawn like everything else."""
    rows: list[dict[str, Any]] = []
    for task in results.tasks:
        accuracies = {
            f"ImpressLearn, {task.role} task": (task.accuracy, max(task.bytes, 1)),
            "SupSup": (task.supsup_accuracy, results.summary.bytes_per_supsup_mask or None),
            "single mask of another task (X)": (task.single_mask_accuracy, None),
        }  # a byte at least: a logarithm knows no zero
        for method, (accuracy, count) in accuracies.items():
            rows.append({"task": task.name, "method": method, "accuracy": accuracy, "bytes": count})
    part = results.coefficients
    rows += [
        {"task": task, "mask": mask, "layer": layer, "coefficient": value}
        for task, of_task in zip(part.tasks, part.values, strict=True)
        for mask, of_mask in zip(part.masks, of_task, strict=True)
        for layer, value in zip(part.layers, of_mask, strict=True)
    ]
    figures = json.loads((files(__package__) / "templates" / "demo.json").read_text("utf-8"))
    if "coefficient" not in rows[-1]:
        figures.pop()
    table = _table(results)
    cells = {"title": table.title, "header": table.header, "rows_verbatim": table.rows}
    return parse_record({
        "format": FORMAT, "target": "demo", "scale": "demo", "title": "Rotated digits",
        "claim": "", "data": "8 x 8 digits, rotated", "seeds": [], "rows": rows,
        "figures": figures, "tables": [cells], "settings": results.settings,
        "versions": results.versions, "hardware": {},
        "seconds": results.summary.seconds or 0, "job_seconds": None,
    })  # fmt: skip
