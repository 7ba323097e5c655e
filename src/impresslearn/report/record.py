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

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from numbers import Real
from typing import Any

from impresslearn.errors import InputError

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
    parts = ("tasks", "summary", "coefficients", "settings", "versions")
    tasks, summary, coefficients, settings, versions = _entries(results, parts, "the record")
    _require(isinstance(settings, Mapping), f"settings must be a mapping, got {_kind(settings)}")
    _require(isinstance(versions, Mapping), f"versions must be a mapping, got {_kind(versions)}")
    _require(_is_list(tasks) and len(tasks) > 0, "tasks must be a list of at least one task")
    for position, task in enumerate(tasks):
        _check_task(task, f"tasks[{position}]")
    for name, value in zip(SUMMARY_KEYS, _entries(summary, SUMMARY_KEYS, "summary"), strict=True):
        _require(
            value is None or _is_number(value),
            f"summary.{name} must be a finite number or null, got {value!r}",
        )
    _check_coefficients(coefficients)


def tasks_of(results: Mapping[str, Any], role: str) -> list[Mapping[str, Any]]:
    """The tasks of one role, in the record's order."""
    return [task for task in results["tasks"] if task["role"] == role]


def _check_task(task: Any, place: str) -> None:
    _, role, accuracy, *baselines, size = _entries(task, TASK_KEYS, place)
    _require(role in ROLES, f"{place}.role must be 'basis' or 'new', got {role!r}")
    _require(
        _is_fraction(accuracy), f"{place}.accuracy must be a fraction in [0, 1], got {accuracy!r}"
    )
    for name, value in zip(BASELINES, baselines, strict=True):
        _require(
            value is None or _is_fraction(value),
            f"{place}.{name} must be a fraction in [0, 1] or null, got {value!r}",
        )
    _require(
        _is_number(size) and size >= 0,
        f"{place}.bytes must be a number of at least 0, got {size!r}",
    )


def _check_coefficients(coefficients: Any) -> None:
    axes = ("tasks", "masks", "layers")
    *names, values = _entries(coefficients, (*axes, "values"), "coefficients")
    for axis, labels in zip(axes, names, strict=True):
        _require(_is_list(labels), f"coefficients.{axis} must be a list of names")
        _require(len(set(labels)) == len(labels), f"coefficients.{axis} must be distinct names")
    shape = tuple(map(len, names))
    _require(
        _has_shape(values, shape), f"coefficients.values must be finite numbers of shape {shape}"
    )


def _entries(part: Any, keys: Sequence[str], place: str) -> list[Any]:
    _require(isinstance(part, Mapping), f"{place} must be a mapping, got {_kind(part)}")
    missing = [key for key in keys if key not in part]
    _require(not missing, f"{place} lacks {_listed(missing)}; it needs {_listed(keys)}")
    return [part[key] for key in keys]


def _has_shape(values: Any, shape: tuple[int, ...]) -> bool:
    if not shape:
        return _is_number(values)
    return (
        _is_list(values)
        and len(values) == shape[0]
        and all(_has_shape(value, shape[1:]) for value in values)
    )


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def _is_fraction(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _kind(value: Any) -> str:
    return type(value).__name__


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(f"unusable result record: {message}")
