"""A task as a store keeps it: its training, its parts, their bytes, and the row that holds them.

A row has a checksum (8 bytes of BLAKE2b), which is compared when the row is read: a damaged page
gives an error, never wrong numbers. Shapes come from the network, not from the row.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from functools import cached_property
from itertools import islice
from typing import Any

from torch import Tensor

from impresslearn.checks import check_name, nearest, shown
from impresslearn.coefficients import Parametrisation
from impresslearn.coefficients.norm_statistics import StoredStatistics, restore_statistics
from impresslearn.coefficients.parametrisation import StoredCoefficients, from_plain, to_plain
from impresslearn.data import Examples, Label, StreamedExamples
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.inference.feature_scores import MOST_BYTES, FeatureProfile
from impresslearn.inference.unknown import TaskProfile
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.store.database import checksum
from impresslearn.tables import size, table_of

ROLES = ("basis", "learned")
FORM = ("columns", "pixels", "shape")  # what the first task records of its raw inputs
# An unknown name is compared with at most this number of names; each comparison takes 20 µs.
COMPARED_NAMES = 40


@dataclass(frozen=True)
class TrainingRun:
    """The data and results of training a task, from which its row is made.

    - phase: has the norm statistics that training gathered.
    - features: features (n, f) of the examples if a readout was fitted to them, else None.
    - profile_bytes: the most bytes that a profile of features may take.
    """

    examples: Examples | StreamedExamples
    classes: tuple[Label, ...]
    phase: TrainingPhase
    metrics: Mapping[str, Any]
    features: Tensor | None = None
    profile_bytes: int = MOST_BYTES


@dataclass(frozen=True)
class TaskInfo:
    """The public summary of a task, a value of `tasks_`.

    - role: "basis" (owns a mask of the bank) or "learned" (has coefficients only).
    - classes: its labels, in the order of its outputs.
    - num_masks: how many masks it needs, counted from the start of the bank.
    - bytes: size of all that only this task needs, without its name, history and index in a store.
    - breakdown: bytes by part: its mask (coded), coefficients, norm statistics, labels, and the
      profile by which task inference recognises the task.
    - history: how it was learned ("recipe", "metrics", "created_at"); predictions do not need it.
    - version: 1 at first; each update adds 1.
    """

    name: str
    role: str
    classes: tuple[Label, ...]
    num_masks: int
    bytes: int
    breakdown: Mapping[str, int] = field(default_factory=dict)
    history: Mapping[str, Any] = field(default_factory=dict, compare=False)
    version: int = 1

    def row(self) -> dict[str, Any]:
        """The task as a row of a table."""
        row = {"task": self.name, "role": self.role, "version": self.version}
        row |= {"classes": len(self.classes), "masks": self.num_masks, "bytes": self.bytes}
        return row | {"learned_at": (self.history.get("created_at") or "")[:19]}

    def _repr_html_(self) -> str:
        parts = [f"{part} {size(count)}" for part, count in self.breakdown.items() if count]
        return table_of([self.row()], note="; ".join(parts)).html()


@dataclass(frozen=True)
class StoredTask(TaskInfo):
    """A stored task, decoded: everything that is needed to predict with it.

    - mask: the name of a basis task's own mask; None for a learned task.
    - coefficients: None for a basis task without a head.
    - encoded_profile: its profile as the store keeps it, and the kind of the profile.
    - digest: the checksum of its row.
    """

    mask: str | None = None
    coefficients: StoredCoefficients | None = None
    statistics: StoredStatistics | None = None
    encoded_profile: tuple[bytes | None, str | None] = (None, None)
    digest: bytes = field(default=b"", compare=False, repr=False)

    @property
    def parts(self) -> tuple[Parametrisation, ...]:
        """The parametrisations that its coefficients belong to."""
        return () if self.coefficients is None else self.coefficients.parts

    @cached_property
    def profile(self) -> TaskProfile | FeatureProfile | None:
        """The profile by which it recognises its own inputs; predictions do not need it."""
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
    """A task in encoded form, as a store keeps it and as it is sent to another store.

    - form: JSON that many tasks share: classes, parametrisations, precision, recipe.
    - coefficients, statistics, profile: bytes, or None if the task has none.
    - history: JSON that only this task has.
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
        """The values of `form`; do not change them."""
        return json.loads(self.form)

    def same_numbers(self, other: "TaskRow") -> bool:
        """Whether another row predicts the same: all but version and history is equal."""
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
    ) -> "TaskRow":
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
    """A task's row, without norm statistics and profile. mask_bytes: the coded size of its mask."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    recipe, metrics = dict(how_learned), dict(run.metrics)
    recipe |= {key: metrics.pop(key) for key in FORM if key in metrics}  # which tasks share
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
    """Decodes a row. If it belongs to another network, raises what `Database.decoding` catches."""
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
    """Raises InputError unless `name` is a valid task name and no known task has it."""
    if check_name(name) in known:
        raise name_taken(name)


def name_taken(name: str) -> InputError:
    """The error for a new task whose name another task has."""
    line = "was learned already; choose another name, or update or remove it"
    return InputError(f"task {name!r} {line}")


def find_task(name: str, known: Mapping[str, TaskInfo]) -> TaskInfo:
    """The task with this name. Raises UnknownTaskError, which names the closest known tasks."""
    if name not in known:
        raise unknown_task(name, known)
    return known[name]


def unknown_task(
    name: object, known: Collection[str], count: int | None = None
) -> UnknownTaskError:
    """The error for a name that no task has; it names the closest known tasks.

    count: the number of all tasks, if `known` is only some of them.
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
    """Bytes of a label map: 2 for the number of classes, plus the labels unless they are 0..K-1.

    A store writes the map as text, once for all tasks with equal maps.
    """
    if classes == tuple(range(len(classes))):
        return 2
    if all(isinstance(label, int) for label in classes):
        low, high = int(min(classes)), int(max(classes))
        bits = max(high.bit_length(), (~low).bit_length()) + 1 if low < 0 else high.bit_length()
        return 2 + len(classes) * next(size for size in (1, 2, 4, 8) if bits <= 8 * size)
    return 2 + sum(1 + len(str(label).encode()) for label in classes)
