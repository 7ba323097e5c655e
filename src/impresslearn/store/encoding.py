"""Turns tasks, masks and projections into rows of a store, and back.

A row carries 64 bits of BLAKE2b over its content, checked whenever the row is read: a damaged page
gives an error, never other numbers. Shapes come from the network, not from the row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.coefficients.norm_statistics import restore_statistics
from impresslearn.coefficients.parametrisation import StoredCoefficients, from_plain, to_plain
from impresslearn.coefficients.readout import Projection
from impresslearn.errors import InputError
from impresslearn.inference.unknown import QUIET, InputStatistics, TaskProfile
from impresslearn.kernels import pack
from impresslearn.masks import disjoint_mask, random_mask
from impresslearn.masks.bank import MaskInfo, PackedMask, coded_mask
from impresslearn.masks.codec import decode_mask as decode_bits
from impresslearn.networks import Backbone
from impresslearn.networks.layers import MaskableLayer
from impresslearn.store.tasks import LearnedTask

UNREADABLE = (ValueError, KeyError, TypeError, IndexError, AttributeError)
"""What decoding a row may raise that does not belong to this network."""


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

    def checksum(self) -> bytes:
        """Of everything that the row holds."""
        texts = (self.name, str(self.version), self.mask or "", str(self.num_masks))
        encoded = [text.encode() for text in (*texts, self.form, self.history)]
        return checksum(*encoded, self.coefficients, self.statistics, self.profile)

    def document(self) -> int:
        """The number under which the store keeps the form."""
        digest = hashlib.blake2b(self.form.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)


@dataclass(frozen=True)
class MaskRow:
    """A mask; bits: None where its recipe draws it again; digest: of the packed bits."""

    name: str
    source: str
    recipe: str
    bits: bytes | None
    digest: bytes

    def checksum(self) -> bytes:
        """Of everything that the row holds."""
        texts = (self.name, self.source, self.recipe)
        return checksum(*(text.encode() for text in texts), self.bits, self.digest)


def checksum(*contents: bytes | None) -> bytes:
    """64 bits of BLAKE2b over contents and their lengths."""
    digest = hashlib.blake2b(digest_size=8)
    for content in contents:
        digest.update((len(content) if content is not None else 2**64 - 1).to_bytes(8, "little"))
        digest.update(content or b"")
    return digest.digest()


def to_json(value: Any) -> str:
    """Plain values as one compact line. Raises InputError for anything that JSON cannot hold."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a store keeps plain JSON values only: {error}") from None


def encode_task(task: LearnedTask) -> TaskRow:
    """A task as a row."""
    stored, statistics = task.coefficients, task.statistics
    recipe = dict(task.history.get("recipe", {}))
    own: dict[str, Any] = {
        "metrics": dict(task.history.get("metrics", {})),
        "created_at": task.history.get("created_at", ""),
    }
    if task.mask is not None:
        own["mask_bytes"] = task.mask_bytes
    if "seed" in recipe:  # the one setting that differs from task to task
        own["seed"] = recipe.pop("seed")
    form = {
        "classes": list(task.classes),
        "parts": [] if stored is None else to_plain(stored.parts),
        "precision": None if stored is None else stored.precision,
        "coded_statistics": statistics is not None and statistics.code is not None,
        "recipe": recipe,
    }
    return TaskRow(
        name=task.name,
        version=task.version,
        mask=task.mask,
        num_masks=task.num_masks,
        form=to_json(form),
        coefficients=None if stored is None else stored.content,
        statistics=None if statistics is None else statistics.content,
        profile=None if task.profile is None else _profile_bytes(task.profile),
        history=to_json(own),
    )


def decode_task(row: TaskRow, backbone: Backbone) -> LearnedTask:
    """The task of a row. Raises one of UNREADABLE for a task of another network."""
    form, own = json.loads(row.form), json.loads(row.history)
    classes = tuple(form["classes"])
    coefficients = None
    if row.coefficients is not None:
        num_masks = 0 if row.mask is not None else row.num_masks
        parts = from_plain(form["parts"])
        coefficients = StoredCoefficients(
            form["precision"], parts, num_masks, len(classes), row.coefficients
        )
    statistics = None
    if row.statistics is not None:
        statistics = restore_statistics(backbone, row.statistics, form["coded_statistics"])
    recipe = form["recipe"]
    if "seed" in own:
        recipe = {"seed": own["seed"], **recipe}
    return LearnedTask(
        row.name,
        classes,
        row.num_masks,
        coefficients,
        row.mask,
        mask_bytes=own.get("mask_bytes", 0),
        statistics=statistics,
        profile=None if row.profile is None else _profile(row.profile),
        history={"recipe": recipe, "metrics": own["metrics"], "created_at": own["created_at"]},
        version=row.version,
        number=row.id,
    )


def encode_mask(mask: PackedMask, layers: Sequence[MaskableLayer]) -> MaskRow:
    """A mask as a row."""
    info, packed = mask
    recipe = {"ones": list(info.ones), **info.recipe}
    bits = None
    if not (info.stored_as_seed and _can_redraw(mask, layers)):
        bits = coded_mask(mask, layers)[0].coded
    return MaskRow(info.name, info.source, to_json(recipe), bits, _digest(packed))


def decode_mask(row: MaskRow, layers: Sequence[MaskableLayer]) -> PackedMask:
    """The mask of a row. Raises one of UNREADABLE for a mask of other layers."""
    recipe = json.loads(row.recipe)
    ones = tuple(recipe.pop("ones"))
    if row.bits is None:
        packed = _redraw(layers, ones, recipe)
    else:
        shapes = [(layer.units, layer.fan_in) for layer in layers]
        packed = [pack(torch.from_numpy(bits)) for bits in decode_bits(row.bits, shapes)]
    if _digest(packed) != row.digest:
        raise ValueError(f"mask {row.name!r} does not have the bits that were written")
    return MaskInfo(row.name, row.source, ones, recipe, row.bits), packed


def encode_projection(projection: Projection) -> bytes:
    """Masks, whether the network itself comes first, components, and the matrix in float16."""
    sizes = [projection.num_masks, projection.residual, projection.matrix.shape[1]]
    matrix = projection.matrix.cpu().half().contiguous().numpy()
    return np.array(sizes, "<u4").tobytes() + matrix.tobytes()


def decode_projection(content: bytes, backbone: Backbone) -> Projection:
    """The projection of the network's features. Raises ValueError for another network's."""
    num_masks, residual, components = np.frombuffer(content[:12], "<u4").tolist()
    matrix = np.frombuffer(content[12:], "<f2").reshape(-1, components)
    fan_in = 0 if backbone.own_head is None else backbone.own_head.fan_in
    if len(matrix) != (num_masks + residual) * fan_in:
        raise ValueError("a projection of another network's features")
    tensor = torch.from_numpy(matrix.astype(np.float32)).to(backbone.device)
    return Projection(num_masks, bool(residual), tensor)


def _can_redraw(mask: PackedMask, layers: Sequence[MaskableLayer]) -> bool:
    """Whether the recipe gives this very mask: a caller may have named their own one "random"."""
    info, packed = mask
    try:
        return _digest(_redraw(layers, info.ones, info.recipe)) == _digest(packed)
    except UNREADABLE:
        return False


def _redraw(
    layers: Sequence[MaskableLayer], ones: Sequence[int], recipe: Mapping[str, Any]
) -> list[Tensor]:
    seed, number, shared = recipe["seed"], recipe["number"], recipe.get("disjoint")
    if shared is None:
        drawn = random_mask(layers, ones, seed, number)
    else:
        kernels = recipe.get("kernels", False)
        drawn = disjoint_mask(layers, shared, seed, number, kernels=kernels)
    return [pack(drawn[layer.name].reshape(layer.units, layer.fan_in)) for layer in layers]


def _digest(packed: Sequence[Tensor]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for bits in packed:
        digest.update(bits.cpu().contiguous().numpy().data)
    return digest.digest()


def _profile_bytes(profile: TaskProfile) -> bytes:
    entropies = np.array([profile.own_entropy, profile.shuffled_entropy], dtype="<f2").tobytes()
    inputs = profile.inputs
    if inputs is None:
        return entropies
    if not inputs.has_few_features:
        return entropies + bytes(inputs.groups) + np.array(inputs.numbers, dtype="<f2").tobytes()
    numbers = [*inputs.moments, inputs.spread, *inputs.limits]
    count = len(inputs.steps)
    levels = bytes([count]) + np.array(inputs.steps, dtype="i1").tobytes()
    # Padded to an odd length, which tells it from the other kind.
    return entropies + np.array(numbers, dtype="<f2").tobytes() + levels + bytes(count % 2)


def _profile(content: bytes) -> TaskProfile:
    own, foreign = np.frombuffer(content[:4], dtype="<f2").tolist()
    if len(content) == 4:
        return TaskProfile(own, foreign)
    if len(content) % 2:
        numbers, count = np.frombuffer(content[4:20], dtype="<f2"), content[20]
        steps = np.frombuffer(content[21 : 21 + count], dtype="i1")
        return TaskProfile(
            own, foreign, InputStatistics.of_few_features(steps.tolist(), numbers.tolist())
        )
    numbers = np.frombuffer(content[4 + QUIET :], dtype="<f2")
    groups = list(content[4 : 4 + QUIET])
    return TaskProfile(own, foreign, InputStatistics.of(groups, numbers.tolist()))
