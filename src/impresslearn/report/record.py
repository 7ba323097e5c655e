"""The shape of the demo's result record, and the one check that every renderer makes first.

    tasks         [{name, role: "basis" | "new", accuracy, supsup_accuracy, single_mask_accuracy,
                    bytes}]
    summary       {new_task_accuracy, supsup_accuracy, single_mask_accuracy, forgetting,
                   bytes_per_new_task, bytes_per_supsup_mask, task_inference_accuracy, seconds}
    coefficients  {masks: [name], layers: [name], tasks: [name], values: (tasks, masks, layers)}
    settings      {name: value}
    versions      {package: version}

Accuracies are fractions in [0, 1]. Those of the baselines, and every number of the summary, may be
None where they were not measured.
"""

from collections.abc import Mapping
from typing import Any

from impresslearn.report.checks import (
    entries,
    has_shape,
    is_fraction,
    is_list,
    is_number,
    kind,
    naming,
    require,
)

BASELINES = ("supsup_accuracy", "single_mask_accuracy")
TASK_KEYS = ("name", "role", "accuracy", *BASELINES, "bytes")
SUMMARY_KEYS = (
    "new_task_accuracy",
    *BASELINES,
    "forgetting",
    "bytes_per_new_task",
    "bytes_per_supsup_mask",
    "task_inference_accuracy",
    "seconds",
)
ROLES = ("basis", "new")


def check_demo_record(results: Mapping[str, Any]) -> None:
    """Raise InputError, naming the place, unless `results` has the shape above."""
    with naming("unusable result record"):
        _check(results)


def tasks_of(results: Mapping[str, Any], role: str) -> list[Mapping[str, Any]]:
    """The tasks of one role, in the record's order."""
    return [task for task in results["tasks"] if task["role"] == role]


def _check(results: Mapping[str, Any]) -> None:
    parts = ("tasks", "summary", "coefficients", "settings", "versions")
    tasks, summary, coefficients, settings, versions = entries(results, parts, "the record")
    require(isinstance(settings, Mapping), f"settings must be a mapping, got {kind(settings)}")
    require(isinstance(versions, Mapping), f"versions must be a mapping, got {kind(versions)}")
    require(is_list(tasks) and len(tasks) > 0, "tasks must be a list of at least one task")
    for position, task in enumerate(tasks):
        _check_task(task, f"tasks[{position}]")
    for name, value in zip(SUMMARY_KEYS, entries(summary, SUMMARY_KEYS, "summary"), strict=True):
        require(
            value is None or is_number(value),
            f"summary.{name} must be a finite number or null, got {value!r}",
        )
    _check_coefficients(coefficients)


def _check_task(task: Any, place: str) -> None:
    _, role, accuracy, *baselines, size = entries(task, TASK_KEYS, place)
    require(role in ROLES, f"{place}.role must be 'basis' or 'new', got {role!r}")
    require(
        is_fraction(accuracy), f"{place}.accuracy must be a fraction in [0, 1], got {accuracy!r}"
    )
    for name, value in zip(BASELINES, baselines, strict=True):
        require(
            value is None or is_fraction(value),
            f"{place}.{name} must be a fraction in [0, 1] or null, got {value!r}",
        )
    require(
        is_number(size) and size >= 0,
        f"{place}.bytes must be a number of at least 0, got {size!r}",
    )


def _check_coefficients(coefficients: Any) -> None:
    axes = ("tasks", "masks", "layers")
    *names, values = entries(coefficients, (*axes, "values"), "coefficients")
    for axis, labels in zip(axes, names, strict=True):
        require(is_list(labels), f"coefficients.{axis} must be a list of names")
        require(len(set(labels)) == len(labels), f"coefficients.{axis} must be distinct names")
    shape = tuple(map(len, names))
    require(
        has_shape(values, shape), f"coefficients.values must be finite numbers of shape {shape}"
    )
