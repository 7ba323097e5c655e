"""A task as a store keeps it: its training, its parts, their bytes, and the row that holds them.

A row carries 64 bits of BLAKE2b over its content, checked whenever the row is read: a damaged page
gives an error, never other numbers. Shapes come from the network, not from the row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from typing import Any

from torch import Tensor

from impresslearn.checks import check_name, nearest, shown
from impresslearn.coefficients.norm_statistics import StoredStatistics, restore_statistics
from impresslearn.coefficients.parametrisation import (
    Parametrisation,
    StoredCoefficients,
    from_plain,
    to_plain,
)
from impresslearn.data import Examples, Label, StreamedExamples
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.inference.feature_scores import MOST_BYTES, FeatureProfile
from impresslearn.inference.unknown import TaskProfile
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TrainingPhase

ROLES = ("basis", "learned")
# An unknown name is compared with this many names at most, as each comparison takes 20 µs.
COMPARED_NAMES = 100
# What decoding a row of another network may raise.
UNREADABLE = (ValueError, KeyError, TypeError, IndexError, AttributeError)


@dataclass(frozen=True)
class TrainingRun:
    """The training behind a task.

    - examples, classes: its training data.
    - phase: holds the norm statistics that were gathered.
    - metrics: plain values for the task's history.
    - features: (n, f) of the examples, which a readout was fitted to.
    - profile_bytes: of what the task knows of its inputs' features, at most.
    """

    examples: Examples | StreamedExamples
    classes: tuple[Label, ...]
    phase: TrainingPhase
    metrics: Mapping[str, Any]
    features: Tensor | None = None
    profile_bytes: int = MOST_BYTES

    def history(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """How a task was learned, as plain values."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        recipe, metrics = dict(recipe), dict(self.metrics)
        for name in ("columns", "pixels", "shape"):
            if name in metrics:  # the tasks of a store share them, and their recipe is kept once
                recipe[name] = metrics.pop(name)
        return {"recipe": recipe, "metrics": metrics, "created_at": now}


@dataclass(frozen=True)
class TaskInfo:
    """The public summary of a task, as `tasks_` gives it.

    - role: "basis" (owns a mask of the bank) or "learned" (has coefficients only).
    - classes: its labels, in the order of its outputs.
    - num_masks: the number of masks, from the start of the bank, that it needs.
    - bytes: size in a store of everything that only this task needs.
    - breakdown: the bytes of the mask (coded), coefficients, norm statistics, labels, and the
      profile that task inference recognises the task by.
    - history: how it was learned ("recipe", "metrics", "created_at"); not needed to predict.
    - version: 1, and one more with every update.
    """

    name: str
    role: str
    classes: tuple[Label, ...]
    num_masks: int
    bytes: int
    breakdown: Mapping[str, int] = field(default_factory=dict)
    history: Mapping[str, Any] = field(default_factory=dict, compare=False)
    version: int = 1


@dataclass(frozen=True)
class LearnedTask:
    """A task as it is kept: everything that is needed to predict with it.

    - coefficients: None for a basis task without a head.
    - mask: the name of a basis task's own mask, and mask_bytes its coded size.
    - statistics: norm statistics, if the norm policy keeps them per task.
    - profile: what task inference knows of its inputs.
    - history: plain values about how it was learned.
    - row_id: of its row, unique among all tasks and versions of the store.
    - digest: of everything in its row.
    """

    name: str
    classes: tuple[Label, ...]
    num_masks: int
    coefficients: StoredCoefficients | None = None
    mask: str | None = None
    mask_bytes: int = 0
    statistics: StoredStatistics | None = None
    profile: TaskProfile | FeatureProfile | None = None
    history: Mapping[str, Any] = field(default_factory=dict, compare=False)
    version: int = 1
    row_id: int = field(default=0, compare=False)
    digest: bytes = field(default=b"", compare=False, repr=False)

    @property
    def role(self) -> str:
        """ "basis" or "learned"."""
        return "learned" if self.mask is None else "basis"

    @property
    def parts(self) -> tuple[Parametrisation, ...]:
        """What its coefficients are numbers of."""
        return () if self.coefficients is None else self.coefficients.parts

    def info(self) -> TaskInfo:
        """The public summary, with every byte counted."""
        return task_info(encode_task(self))


@dataclass(frozen=True)
class TaskRow:
    """A task as a store keeps it; also what travels from one store to another.

    - form: JSON that many tasks share: classes, parametrisations, precision, recipe.
    - coefficients, statistics, profile: bytes, or None where the task has none.
    - history: JSON of this task alone.
    - id: the row's own number.
    """

    name: str
    version: int
    mask: str | None
    num_masks: int
    form: str
    coefficients: bytes | None
    statistics: bytes | None
    profile: bytes | None
    history: str
    id: int = 0

    def same_numbers(self, other: TaskRow) -> bool:
        """Whether another row predicts the same: all is equal but version and history."""
        parts = ("mask", "num_masks", "form", "coefficients", "statistics", "profile")
        return all(getattr(self, part) == getattr(other, part) for part in parts)

    def checksum(self) -> bytes:
        """Of everything that the row holds."""
        about = (self.name, str(self.version), self.mask or "", str(self.num_masks))
        texts = (*about, self.form, self.history)
        return checksum(*texts, self.coefficients, self.statistics, self.profile)


def encode_task(task: LearnedTask) -> TaskRow:
    """A task as a row."""
    stored, statistics = task.coefficients, task.statistics
    recipe = dict(task.history.get("recipe", {}))
    history: dict[str, Any] = {
        "metrics": dict(task.history.get("metrics", {})),
        "created_at": task.history.get("created_at", ""),
    }
    if task.mask is not None:
        history["mask_bytes"] = task.mask_bytes
    if "seed" in recipe:  # the one setting that differs from task to task
        history["seed"] = recipe.pop("seed")
    form = {
        "classes": list(task.classes),
        "parts": to_plain(task.parts),
        "precision": None if stored is None else stored.precision,
        "coded_statistics": statistics is not None and statistics.code is not None,
        "recipe": recipe,
    }
    if isinstance(task.profile, FeatureProfile):
        form["profile"] = "features"
    elif task.profile and task.profile.has_few_features:
        form["profile"] = "values"
    return TaskRow(
        name=task.name,
        version=task.version,
        mask=task.mask,
        num_masks=task.num_masks,
        form=to_json(form),
        coefficients=None if stored is None else stored.content,
        statistics=None if statistics is None else statistics.content,
        profile=None if task.profile is None else task.profile.encode(),
        history=to_json(history),
    )


def task_info(row: TaskRow) -> TaskInfo:
    """The public summary of a row, with every byte counted; it needs no network."""
    form, history, mask_bytes = _read_texts(row)
    classes = tuple(form["classes"])
    breakdown = {
        "mask": mask_bytes,
        "coefficients": len(row.coefficients or b""),
        "statistics": len(row.statistics or b""),
        "labels": label_map_bytes(classes),
        "profile": len(row.profile or b""),
    }
    role = "learned" if row.mask is None else "basis"
    about = (row.name, role, classes, row.num_masks, sum(breakdown.values()))
    return TaskInfo(*about, breakdown, history, row.version)


def decode_task(row: TaskRow, backbone: Backbone) -> LearnedTask:
    """The task of a row. Raises one of `UNREADABLE` for a row of another network."""
    form, history, mask_bytes = _read_texts(row)
    classes, kind = tuple(form["classes"]), form.get("profile")
    coefficients = statistics = None
    profile: TaskProfile | FeatureProfile | None = None
    if row.coefficients is not None:
        num_masks = 0 if row.mask is not None else row.num_masks
        parts = from_plain(form["parts"])
        coefficients = StoredCoefficients(
            form["precision"], parts, num_masks, len(classes), row.coefficients
        )
    if row.statistics is not None:
        statistics = restore_statistics(backbone, row.statistics, form["coded_statistics"])
    if row.profile is not None and kind == "features":
        profile = FeatureProfile.decode(row.profile)
    elif row.profile is not None:
        profile = TaskProfile.decode(row.profile, few_features=kind == "values")
    return LearnedTask(
        row.name,
        classes,
        row.num_masks,
        coefficients,
        row.mask,
        mask_bytes=mask_bytes,
        statistics=statistics,
        profile=profile,
        history=history,
        version=row.version,
        row_id=row.id,
        digest=row.checksum(),
    )


def _read_texts(row: TaskRow) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The form and the history of a row, and the bytes of its mask."""
    form, history = json.loads(row.form), json.loads(row.history)
    recipe, mask_bytes = form["recipe"], history.pop("mask_bytes", 0)
    if "seed" in history:
        recipe = {"seed": history.pop("seed"), **recipe}
    return form, {"recipe": recipe, **history}, mask_bytes


def to_json(value: Any) -> str:
    """Plain values as one compact line. Raises InputError for anything that JSON cannot hold."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a store keeps plain JSON values only: {error}") from None


def checksum(*contents: str | bytes | None) -> bytes:
    """64 bits of BLAKE2b over contents and their lengths."""
    digest = hashlib.blake2b(digest_size=8)
    for content in contents:
        encoded = content.encode() if isinstance(content, str) else content
        # The length keeps parts apart; no content is None's.
        length = 2**64 - 1 if encoded is None else len(encoded)
        digest.update(length.to_bytes(8, "little"))
        digest.update(encoded or b"")
    return digest.digest()


def check_new_name(name: str, known: Collection[str]) -> None:
    """Raises InputError unless `name` can be a task's and is none of the known ones."""
    if check_name(name) in known:
        raise name_taken(name)


def name_taken(name: str) -> InputError:
    """The error for a new task of a name that another task has."""
    return InputError(
        f"task {name!r} was learned already; choose another name, or update or remove it"
    )


def find_task(name: str, known: Mapping[str, TaskInfo]) -> TaskInfo:
    """The task of that name. Raises UnknownTaskError, naming the closest known tasks."""
    if name not in known:
        raise unknown_task(name, known)
    return known[name]


def unknown_task(name: object, known: Collection[str], are_all: bool = True) -> UnknownTaskError:
    """The error for a name that is not among the known tasks, naming the closest of them.

    - known: names of tasks; are_all: whether these are all tasks.
    """
    if not known:
        return UnknownTaskError(f"no task named {name!r}: nothing was learned yet")
    compared = list(islice(known, COMPARED_NAMES))
    close = nearest(name, compared)
    names = ", ".join(map(repr, close or compared[:3]))
    count = str(len(known)) if are_all else f"more than {COMPARED_NAMES}"
    among = f"{count}{'; close: ' if close else ', such as '}{names}"
    if isinstance(name, str):
        return UnknownTaskError(f"no task named {name!r} among {among}")
    return UnknownTaskError(f"a task's name must be one string, as {names}, got {shown(name)}")


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of tensors that are kept as they are."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def label_map_bytes(classes: tuple[Label, ...]) -> int:
    """Bytes of a label map: 2 for the number of classes, and the labels unless they are 0..K-1.

    A store writes it as text, but once for all tasks that have the same.
    """
    if classes == tuple(range(len(classes))):
        return 2
    if all(isinstance(label, int) for label in classes):
        low, high = int(min(classes)), int(max(classes))
        bits = max(high.bit_length(), (~low).bit_length()) + 1 if low < 0 else high.bit_length()
        return 2 + len(classes) * next(size for size in (1, 2, 4, 8) if bits <= 8 * size)
    return 2 + sum(1 + len(str(label).encode()) for label in classes)
