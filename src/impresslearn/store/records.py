"""Tasks as rows of a store, and back.

A row decodes to exactly what was encoded or to a ValueError; callers turn that into a StoreError
that names the file. Shapes come from the backbone, never from the row, so that a row cannot ask
for more memory than the network has weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.coefficients.levels import MODEL_BYTES
from impresslearn.coefficients.quantisation import PRECISIONS, StoredCoefficients, StoredTensor
from impresslearn.data import Label
from impresslearn.errors import InputError
from impresslearn.networks import Backbone
from impresslearn.networks.layers import MaskableLayer
from impresslearn.state.tasks import EntropyProfile, LearnedTask
from impresslearn.store.checks import Value
from impresslearn.store.values import UNREADABLE, check_kinds, of_kind, to_json

_BITS = {"float32": 32, "float16": 16, "int8": 8, "int5": 5, "int4": 4}
MOST_ENTROPY = 1.001
"""The logarithm of the number of classes, rounded up to what float16 knows."""
_LEAST_CODED_BITS = 1 / 256
"""A code in which a number takes less does not exist: log2(256 / 255) at best."""


@dataclass(frozen=True)
class TaskRow:
    """The columns of a task, in the order of its checksum; texts stand for document numbers.

    mask_bytes: what its mask takes in the table of masks; no column of its own.
    """

    name: str
    mask: str | None
    num_masks: int
    classes: str
    form: str | None
    coefficients: bytes | None
    statistics: bytes | None
    profile: bytes | None
    recipe: str
    metrics: str
    created_at: str
    mask_bytes: int | None = None

    def values(self) -> tuple[Value, ...]:
        """The columns as they are checked and written."""
        return (
            self.name, self.mask, self.num_masks, self.classes, self.form, self.coefficients,
            self.statistics, self.profile, self.recipe, self.metrics, self.created_at,
        )  # fmt: skip


def encode_task(task: LearnedTask, backbone: Backbone) -> TaskRow:
    """A task as a row. Raises InputError for one that could not be read again."""
    row = _task_row(task)
    try:
        decode_task(row, backbone, task.version, task.num_masks)
    except UNREADABLE as error:
        raise InputError(f"task {task.name[:80]!r} cannot be kept: {error}") from None
    return row


def _task_row(task: LearnedTask) -> TaskRow:
    stored = task.coefficients
    recipe = dict(task.history.get("recipe", {}))
    metrics = dict(task.history.get("metrics", {}))
    if "seed" in recipe:  # the one setting that differs from task to task
        metrics["seed"] = recipe.pop("seed")
    return TaskRow(
        task.name,
        task.mask,
        task.num_masks,
        to_json(list(task.classes)),
        None if stored is None else to_json(_form(stored)),
        None if stored is None else _join(stored),
        None if task.statistics is None else encode_statistics(task.statistics),
        None if task.profile is None else _profile(task.profile),
        to_json(recipe),
        to_json(metrics),
        str(task.history.get("created_at", "")),
    )


def decode_task(row: TaskRow, backbone: Backbone, version: int, masks: int) -> LearnedTask:
    """The task of a row; masks: how many there are.

    Raises one of UNREADABLE for a row that cannot be a task of this network, whoever wrote it.
    """
    check_kinds(row, name=str, num_masks=int, created_at=str)
    if not 1 <= row.num_masks <= masks:
        raise ValueError(f"it combines {row.num_masks} masks of {masks}")
    if (row.mask is None) != (row.coefficients is not None):
        raise ValueError("it has neither a mask nor coefficients, or both")
    classes = _labels(row.classes, backbone.num_classes)
    coefficients = None
    if row.coefficients is not None:
        form = of_kind(dict, row.form or "")
        coefficients = _split(row.coefficients, form, row.num_masks, backbone.layers)
    metrics = of_kind(dict, row.metrics)
    recipe = of_kind(dict, row.recipe)
    if "seed" in metrics:
        recipe = {"seed": metrics.pop("seed"), **recipe}
    history = {"recipe": recipe, "metrics": metrics, "created_at": row.created_at}
    if (row.statistics is not None) != backbone.has_task_statistics:
        raise ValueError(f"norm statistics do not fit the norm policy {backbone.norm!r}")
    statistics = None
    if row.statistics is not None:
        statistics = decode_statistics(row.statistics, backbone)
    return LearnedTask(
        row.name,
        classes,
        row.num_masks,
        coefficients,
        row.mask,
        row.mask_bytes or 0,
        statistics,
        None if row.profile is None else _restored_profile(row.profile),
        history,
        version,
    )


def encode_statistics(statistics: Mapping[str, Tensor]) -> bytes:
    """Norm statistics, in the order of the network's buffers, little-endian as torch keeps them."""
    return b"".join(
        value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for value in statistics.values()
    )


def decode_statistics(content: bytes, backbone: Backbone) -> dict[str, Tensor]:
    """The statistics of a network. Raises ValueError for another length and impossible values."""
    start, found = 0, {}
    for name, like in backbone.initial_statistics().items():
        size = like.numel() * like.element_size()
        piece = bytearray(content[start : start + size])
        if len(piece) != size:
            raise ValueError("norm statistics of another network")
        value = torch.frombuffer(piece, dtype=like.dtype).view(like.shape)
        variance = name.endswith("running_var")
        if not value.isfinite().all() or (variance and (value < 0).any()):
            raise ValueError(f"the norm statistics {name!r} hold impossible values")
        found[name] = value.to(like.device)
        start += size
    if start != len(content):
        raise ValueError("norm statistics of another network")
    return found


def _labels(text: str, outputs: int) -> tuple[Label, ...]:
    """The labels of a task: different 64-bit integers, or different strings."""
    classes = tuple(of_kind(list, text))
    if not 2 <= len(classes) <= outputs:
        raise ValueError(f"{len(classes)} classes for {outputs} outputs")
    whole = all(type(label) is int and -(2**63) <= label < 2**63 for label in classes)
    if not whole and not all(type(label) is str for label in classes):
        raise ValueError("labels that are neither 64-bit integers nor strings")
    if len(set(classes)) < len(classes):
        raise ValueError("labels that are not distinct")
    return classes


def _form(stored: StoredCoefficients) -> dict[str, Any]:
    return {
        "precision": stored.precision,
        "granularity": "unit" if len(stored.alpha[0].shape) == 2 else "layer",
        "output_scale": stored.output_scale is not None,
        "input_scale": stored.input_scale is not None,
    }


def _join(stored: StoredCoefficients) -> bytes:
    own = (part.payload + part.steps + part.offset for part in stored.parts)
    return b"".join([*own, stored.levels])


def _split(
    content: bytes, form: Mapping[str, Any], num_masks: int, layers: Sequence[MaskableLayer]
) -> StoredCoefficients:
    """Coefficients from their bytes; the form and the layers say how many each tensor has."""
    precision = form["precision"]
    if precision not in PRECISIONS or form["granularity"] not in ("layer", "unit"):
        raise ValueError(f"coefficients of an unknown form {dict(form)!r}")
    by_unit = form["granularity"] == "unit"
    fewest = sum(layer.units for layer in layers) if by_unit else len(layers)
    if not 1 <= num_masks * fewest <= 8 * len(content) / _least_bits(precision):
        raise ValueError(f"{num_masks} masks in {len(content)} bytes of coefficients")
    reader = _Reader(content)
    alpha = tuple(
        reader.tensor((num_masks, layer.units) if by_unit else (num_masks,), precision, False)
        for layer in layers
    )
    outputs = inputs = None
    if form["output_scale"]:
        outputs = tuple(reader.tensor((layer.units,), precision, True) for layer in layers)
    if form["input_scale"]:
        inputs = tuple(reader.tensor((layer.shape[1],), precision, True) for layer in layers)
    levels = reader.rest() if precision == "coded" else b""
    reader.finish()
    stored = StoredCoefficients(precision, alpha, outputs, inputs, levels)
    if precision == "coded":
        stored.restore()  # only decoding tells whether the code is whole
    return stored


def _least_bits(precision: str) -> float:
    return _LEAST_CODED_BITS if precision == "coded" else _BITS[precision]


class _Reader:
    """Takes one tensor's bytes after another."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def tensor(self, shape: tuple[int, ...], precision: str, centred: bool) -> StoredTensor:
        if precision == "coded":
            return StoredTensor(shape, self._take(MODEL_BYTES), self._steps(1), self._numbers(1))
        if precision in ("float32", "float16"):
            return StoredTensor(shape, self._numbers(prod(shape), precision))
        payload = self._take(-(-prod(shape) * _BITS[precision] // 8))
        steps = self._steps(prod(shape[1:]))
        return StoredTensor(shape, payload, steps, self._numbers(1) if centred else b"")

    def rest(self) -> bytes:
        return self._take(len(self._content) - self._place)

    def finish(self) -> None:
        if self._place != len(self._content):
            raise ValueError("more coefficients than the network has layers for")

    def _numbers(self, count: int, precision: str = "float16") -> bytes:
        piece = self._take(count * _BITS[precision] // 8)
        if not np.isfinite(np.frombuffer(piece, precision)).all():
            raise ValueError("coefficients that are NaN or infinite")
        return piece

    def _steps(self, count: int) -> bytes:
        piece = self._numbers(count)
        if not (np.frombuffer(piece, np.float16) > 0).all():
            raise ValueError("rounding steps that are not positive")
        return piece

    def _take(self, size: int) -> bytes:
        piece = self._content[self._place : self._place + size]
        if len(piece) != size:
            raise ValueError("fewer coefficients than the network has layers for")
        self._place += size
        return piece


def _profile(profile: EntropyProfile) -> bytes:
    return np.array([profile.own, profile.foreign], dtype="<f2").tobytes()


def _restored_profile(content: bytes) -> EntropyProfile:
    own, foreign = np.frombuffer(content, dtype="<f2").tolist()
    if not all(0 <= entropy <= MOST_ENTROPY for entropy in (own, foreign)):
        raise ValueError(f"entropies that cannot be: {own}, {foreign}")
    return EntropyProfile(own, foreign)
