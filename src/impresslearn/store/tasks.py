"""A task as a store keeps it: its training, its parts, their bytes, and the row that holds them.

A row carries 64 bits of BLAKE2b over its content, checked when it is decoded: a damaged page
gives an error, never other numbers. Shapes come from the network, not from the row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from functools import cached_property
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
from impresslearn.store.database import checksum

ROLES = ("basis", "learned")
# An unknown name is compared with this many names at most, as each comparison takes 20 µs.
COMPARED_NAMES = 40


@dataclass(frozen=True)
class TrainingRun:
    """The training behind a task.

    - phase: holds the norm statistics that were gathered.
    - features: (n, f) of the examples, which a readout was fitted to.
    - profile_bytes: of what the task knows of its inputs' features, at most.
    """

    examples: Examples | StreamedExamples
    classes: tuple[Label, ...]
    phase: TrainingPhase
    metrics: Mapping[str, Any]
    features: Tensor | None = None
    profile_bytes: int = MOST_BYTES


@dataclass(frozen=True)
class TaskInfo:
    """The public summary of a task, as `tasks_` gives it.

    - role: "basis" (owns a mask of the bank) or "learned" (has coefficients only).
    - classes: its labels, in the order of its outputs.
    - num_masks: the number of masks, from the start of the bank, that it needs.
    - bytes: size of all that only this task needs, without its name, history and index in a store.
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
class StoredTask(TaskInfo):
    """A task as it is kept: everything that is needed to predict with it.

    - mask: the name of a basis task's own mask.
    - coefficients: None for a basis task without a head.
    - encoded_profile: its profile as a store keeps it, and the kind of it.
    - digest: of everything in its row.
    """

    mask: str | None = None
    coefficients: StoredCoefficients | None = None
    statistics: StoredStatistics | None = None
    encoded_profile: tuple[bytes | None, str | None] = (None, None)
    digest: bytes = field(default=b"", compare=False, repr=False)

    @property
    def parts(self) -> tuple[Parametrisation, ...]:
        """What its coefficients are numbers of."""
        return () if self.coefficients is None else self.coefficients.parts

    @cached_property
    def profile(self) -> TaskProfile | FeatureProfile | None:
        """How it recognises its own inputs, which predictions do not need."""
        content, kind = self.encoded_profile
        if content is None:
            return None
        if kind == "features":
            return FeatureProfile.decode(content)
        return TaskProfile.decode(content, few_features=kind == "values")

    def info(self) -> TaskInfo:
        """The public summary."""
        return TaskInfo(*(getattr(self, each.name) for each in fields(TaskInfo)))


@dataclass(frozen=True)
class TaskRow:
    """A task as a store keeps it; also what travels from one store to another.

    - form: JSON that many tasks share: classes, parametrisations, precision, recipe.
    - coefficients, statistics, profile: bytes, or None where the task has none.
    - history: JSON of this task alone.
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

    @cached_property
    def parsed_form(self) -> dict[str, Any]:
        """The values of `form`; not to be changed."""
        return json.loads(self.form)

    def same_numbers(self, other: TaskRow) -> bool:
        """Whether another row predicts the same: all is equal but version and history."""
        return replace(self, version=other.version, history=other.history) == other

    def info(self) -> TaskInfo:
        """The public summary, with every byte counted; it needs no network."""
        form, history = self.parsed_form, json.loads(self.history)
        classes, recipe = tuple(form["classes"]), form["recipe"]
        if "seed" in history:
            recipe = {"seed": history.pop("seed"), **recipe}
        breakdown = {
            "mask": history.pop("mask_bytes", 0),
            "coefficients": len(self.coefficients or b""),
            "statistics": len(self.statistics or b""),
            "labels": label_map_bytes(classes),
            "profile": len(self.profile or b""),
        }
        role = "learned" if self.mask is None else "basis"
        about = (self.name, role, classes, self.num_masks, sum(breakdown.values()))
        return TaskInfo(*about, breakdown, {"recipe": recipe, **history}, self.version)

    def with_profile(
        self, statistics: StoredStatistics | None, profile: TaskProfile | FeatureProfile
    ) -> TaskRow:
        """The row with the norm statistics and the profile of the task."""
        form = json.loads(self.form)
        if statistics is not None:
            form["coded_statistics"] = statistics.code is not None
        if isinstance(profile, FeatureProfile):
            form["profile"] = "features"
        elif profile.has_few_features:
            form["profile"] = "values"
        content = None if statistics is None else statistics.content
        return replace(self, form=to_json(form), statistics=content, profile=profile.encode())

    @cached_property
    def checksum(self) -> bytes:
        """Of everything that the row holds."""
        about = (self.name, str(self.version), self.mask or "", str(self.num_masks))
        texts = (*about, self.form, self.history)
        return checksum(*texts, self.coefficients, self.statistics, self.profile)


def task_row(
    name: str,
    run: TrainingRun,
    how_learned: Mapping[str, Any],
    num_masks: int,
    stored: StoredCoefficients | None,
    *,
    version: int = 1,
    mask: str | None = None,
    mask_bytes: int = 0,
) -> TaskRow:
    """A learned task as a row, as yet without its norm statistics and its profile.

    mask_bytes: the coded size of the task's mask.
    """
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    recipe, metrics = dict(how_learned), dict(run.metrics)
    for shared in ("columns", "pixels", "shape"):
        if shared in metrics:  # the tasks of a store share them, and their recipe is kept once
            recipe[shared] = metrics.pop(shared)
    history: dict[str, Any] = {"metrics": metrics, "created_at": now}
    if mask is not None:
        history["mask_bytes"] = mask_bytes
    if "seed" in recipe:  # the one setting that differs from task to task
        history["seed"] = recipe.pop("seed")
    form = {
        "classes": list(run.classes),
        "parts": [] if stored is None else to_plain(stored.parts),
        "precision": None if stored is None else stored.precision,
        "coded_statistics": False,
        "recipe": recipe,
    }
    content = None if stored is None else stored.content
    return TaskRow(
        name, version, mask, num_masks, to_json(form), content, None, None, to_json(history)
    )


def decode_task(row: TaskRow, backbone: Backbone) -> StoredTask:
    """The task of a row. Raises as `Database.decoding` for a row of another network."""
    info, form = row.info(), row.parsed_form
    coefficients = statistics = None
    if row.coefficients is not None:
        num_masks = 0 if row.mask is not None else row.num_masks
        about = form["precision"], from_plain(form["parts"]), num_masks, len(info.classes)
        coefficients = StoredCoefficients(*about, row.coefficients)
    if row.statistics is not None:
        statistics = restore_statistics(backbone, row.statistics, form["coded_statistics"])
    return StoredTask(
        **vars(info),
        mask=row.mask,
        coefficients=coefficients,
        statistics=statistics,
        encoded_profile=(row.profile, form.get("profile")),
        digest=row.checksum,
    )


def to_json(value: Any) -> str:
    """Plain values as one compact line. Raises InputError for anything that JSON cannot hold."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a store keeps plain JSON values only: {error}") from None


def check_new_name(name: str, known: Collection[str]) -> None:
    """Raises InputError unless `name` can be a task's and is none of the known ones."""
    if check_name(name) in known:
        raise name_taken(name)


def name_taken(name: str) -> InputError:
    """The error for a new task of a name that another task has."""
    line = "was learned already; choose another name, or update or remove it"
    return InputError(f"task {name!r} {line}")


def find_task(name: str, known: Mapping[str, TaskInfo]) -> TaskInfo:
    """The task of that name. Raises UnknownTaskError, naming the closest known tasks."""
    if name not in known:
        raise unknown_task(name, known)
    return known[name]


def unknown_task(
    name: object, known: Collection[str], count: int | None = None
) -> UnknownTaskError:
    """The error for a name that is not among the known tasks, naming the closest of them.

    count: of all tasks, where these are only some of them.
    """
    if not known:
        return UnknownTaskError(f"no task named {name!r}: nothing was learned yet")
    compared = list(islice(known, COMPARED_NAMES))
    close = nearest(name, compared)
    names = ", ".join(map(repr, close or compared[:3]))
    if not isinstance(name, str):
        return UnknownTaskError(f"a task's name must be one string, as {names}, got {shown(name)}")
    among = f"{count or len(known)}{'; close: ' if close else ', such as '}{names}"
    return UnknownTaskError(f"no task named {name!r} among {among}")


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
