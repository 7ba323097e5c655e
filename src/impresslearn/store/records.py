"""Tasks and masks as rows of a store, and back.

A row decodes to exactly what was encoded or to a ValueError; callers turn that into a StoreError
that names the file. Shapes come from the backbone, never from the row, so that a row cannot ask
for more memory than the network has weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.backbones import Backbone
from impresslearn.bank import MaskInfo, PackedMask, coded_mask
from impresslearn.coding import MODEL_BYTES, decode_mask
from impresslearn.errors import InputError
from impresslearn.kernels import pack, popcount
from impresslearn.masking import MaskableLayer
from impresslearn.quantisation import PRECISIONS, StoredCoefficients, StoredTensor
from impresslearn.sources import disjoint_mask, random_mask
from impresslearn.store.checks import Value
from impresslearn.tasks import EntropyProfile, LearnedTask

_BITS = {"float32": 32, "float16": 16, "int8": 8, "int5": 5, "int4": 4}
_LEAST_CODED_BITS = 1 / 256
"""A code in which a number takes less does not exist: log2(256 / 255) at best."""


def to_json(value: Any) -> str:
    """Plain values as one compact line. Raises InputError for NaN and for what JSON has no word."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a store keeps plain JSON values only: {error}") from None


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


def encode_task(task: LearnedTask) -> TaskRow:
    """A task as a row."""
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


def decode_task(row: TaskRow, backbone: Backbone, version: int) -> LearnedTask:
    """The task of a row. Raises ValueError, KeyError or TypeError for a row that cannot be one."""
    _check_kinds(row, name=str, num_masks=int, created_at=str)
    classes = tuple(_of_kind(list, row.classes))
    if not all(type(label) in (int, str) for label in classes) or len(classes) < 1:
        raise ValueError("labels that are neither integers nor strings")
    if len(classes) > backbone.num_classes:
        raise ValueError(f"{len(classes)} classes for {backbone.num_classes} outputs")
    coefficients = None
    if row.mask is None:
        form = _of_kind(dict, row.form or "")
        coefficients = _split(row.coefficients or b"", form, row.num_masks, backbone.layers)
    metrics = _of_kind(dict, row.metrics)
    recipe = _of_kind(dict, row.recipe)
    if "seed" in metrics:
        recipe = {"seed": metrics.pop("seed"), **recipe}
    history = {"recipe": recipe, "metrics": metrics, "created_at": row.created_at}
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


@dataclass(frozen=True)
class MaskRow:
    """The columns of a mask, in the order of its checksum.

    bits: None where the recipe draws the mask again; digest: 16 bytes of BLAKE2b over the packed
    bits, which tells whether it drew the same.
    """

    name: str
    source: str
    recipe: str
    bits: bytes | None
    digest: bytes

    def values(self) -> tuple[Value, ...]:
        """The columns as they are checked and written."""
        return self.name, self.source, self.recipe, self.bits, self.digest


def encode_packed(mask: PackedMask, layers: Sequence[MaskableLayer]) -> MaskRow:
    """A mask as a row."""
    info, packed = mask
    recipe = {"ones": list(info.ones), **info.recipe}
    bits = None
    if not (info.stored_as_seed and _can_redraw(mask, layers)):
        bits = coded_mask(mask, layers)[0].coded
    return MaskRow(info.name, info.source, to_json(recipe), bits, _digest(packed))


def decode_packed(row: MaskRow, layers: Sequence[MaskableLayer]) -> PackedMask:
    """The mask of a row. Raises ValueError, KeyError or TypeError for a row that cannot be one."""
    _check_kinds(row, name=str, source=str)
    recipe = _of_kind(dict, row.recipe)
    ones = tuple(int(count) for count in recipe.pop("ones"))
    if len(ones) != len(layers):
        raise ValueError("a mask of other layers")
    if row.bits is None:
        packed = _redraw(layers, ones, recipe)
    else:
        shapes = [(layer.units, layer.fan_in) for layer in layers]
        packed = [pack(torch.from_numpy(array)) for array in decode_mask(row.bits, shapes)]
    if _digest(packed) != row.digest:
        raise ValueError(f"mask {row.name!r} does not have the bits that were written")
    if tuple(int(popcount(each.unsqueeze(0))[0]) for each in packed) != ones:
        raise ValueError(f"mask {row.name!r} does not have as many ones as were written")
    return MaskInfo(row.name, row.source, ones, recipe, row.bits), packed


def encode_statistics(statistics: Mapping[str, Tensor]) -> bytes:
    """Norm statistics, in the order of the network's buffers, little-endian as torch keeps them."""
    return b"".join(
        value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for value in statistics.values()
    )


def decode_statistics(content: bytes, backbone: Backbone) -> dict[str, Tensor]:
    """The statistics of a network. Raises ValueError for another length."""
    start, found = 0, {}
    for name, like in backbone.initial_statistics().items():
        size = like.numel() * like.element_size()
        piece = bytearray(content[start : start + size])
        if len(piece) != size:
            raise ValueError("norm statistics of another network")
        found[name] = torch.frombuffer(piece, dtype=like.dtype).view(like.shape).to(like.device)
        start += size
    if start != len(content):
        raise ValueError("norm statistics of another network")
    return found


def _can_redraw(mask: PackedMask, layers: Sequence[MaskableLayer]) -> bool:
    """Whether the recipe gives this very mask: a caller may have named their own one "random"."""
    info, packed = mask
    try:
        return _digest(_redraw(layers, info.ones, info.recipe)) == _digest(packed)
    except (KeyError, TypeError, ValueError, OverflowError):
        return False


def _redraw(
    layers: Sequence[MaskableLayer], ones: Sequence[int], recipe: Mapping[str, Any]
) -> list[Tensor]:
    seed, number, shared = recipe["seed"], recipe["number"], recipe.get("disjoint")
    if shared is None:
        drawn = random_mask(layers, ones, seed, number)
    else:
        drawn = disjoint_mask(layers, shared, seed, number)
    return [pack(drawn[layer.name].reshape(layer.units, layer.fan_in)) for layer in layers]


def _of_kind(kind: type, text: Any) -> Any:
    """The JSON value of a text. Raises ValueError for another kind of value."""
    value = json.loads(text) if isinstance(text, str) else None
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _check_kinds(row: Any, **kinds: type) -> None:
    """A checksum proves that a value is what was written, not that we wrote it."""
    for name, kind in kinds.items():
        if type(getattr(row, name)) is not kind:
            raise TypeError(f"its {name} is no {kind.__name__}")


def _digest(packed: Sequence[Tensor]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for each in packed:
        digest.update(each.cpu().contiguous().numpy().data)
    return digest.digest()


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
            return StoredTensor(shape, self._take(MODEL_BYTES), self._take(2), self._take(2))
        payload = self._take(-(-prod(shape) * _BITS[precision] // 8))
        if precision in ("float32", "float16"):
            return StoredTensor(shape, payload)
        steps = self._take(2 * prod(shape[1:]))
        return StoredTensor(shape, payload, steps, self._take(2) if centred else b"")

    def rest(self) -> bytes:
        return self._take(len(self._content) - self._place)

    def finish(self) -> None:
        if self._place != len(self._content):
            raise ValueError("more coefficients than the network has layers for")

    def _take(self, size: int) -> bytes:
        piece = self._content[self._place : self._place + size]
        if len(piece) != size:
            raise ValueError("fewer coefficients than the network has layers for")
        self._place += size
        return piece


def _profile(profile: EntropyProfile) -> bytes:
    return np.array([profile.own, profile.foreign], dtype="<f2").tobytes()


def _restored_profile(content: bytes) -> EntropyProfile:
    own, foreign = np.frombuffer(content, dtype="<f2")
    return EntropyProfile(float(own), float(foreign))
