"""Encodes tasks and masks as rows of a store, and decodes them.

A row decodes to exactly what was encoded or to one of UNREADABLE; callers turn that into a
StoreError that names the file. Shapes come from the backbone, never from the row, so that a row
cannot ask for more memory than the network has weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.coefficients.coding import MODEL_BYTES
from impresslearn.coefficients.mixing import GRANULARITIES, Readout
from impresslearn.coefficients.norm_statistics import StoredStatistics, restore_statistics
from impresslearn.coefficients.quantisation import (
    PRECISIONS,
    StoredCoefficients,
    StoredTensor,
)
from impresslearn.coefficients.readout import Projection
from impresslearn.data import Label
from impresslearn.errors import InputError
from impresslearn.inference.unknown import QUIET, InputStatistics, TaskProfile
from impresslearn.kernels import pack, popcount
from impresslearn.masks import disjoint_mask, random_mask
from impresslearn.masks.bank import MaskInfo, PackedMask, coded_mask
from impresslearn.masks.codec import decode_mask as decode_bits
from impresslearn.networks import Backbone
from impresslearn.networks.heads import TunedKind
from impresslearn.networks.layers import MaskableLayer
from impresslearn.state.tasks import LearnedTask
from impresslearn.store.rows import UNREADABLE, MaskRow, TaskRow, from_json, to_json

_BITS = {"float32": 32, "float16": 16, "int8": 8, "int5": 5, "int4": 4, "coded": 1 / 256}
"""Bits of a number; at least, where it is coded: there is no code below log2(256 / 255) of them."""
_TUNED: dict[TunedKind, str] = {"norm": "norm", "bias": "biases"}
"""The words of rows for what a task tunes."""
MOST_ENTROPY = 1.001
"""The logarithm of the number of classes, rounded up to what float16 knows."""


def encode_mask(mask: PackedMask, layers: Sequence[MaskableLayer]) -> MaskRow:
    """A mask as a row."""
    info, packed = mask
    recipe = {"ones": list(info.ones), **info.recipe}
    bits = None
    if not (info.stored_as_seed and _can_redraw(mask, layers)):
        bits = coded_mask(mask, layers)[0].coded
    return MaskRow(info.name, info.source, to_json(recipe), bits, _digest(packed))


def decode_mask(row: MaskRow, layers: Sequence[MaskableLayer]) -> PackedMask:
    """The mask of a row. Raises one of UNREADABLE for a row that cannot be one."""
    _check_kinds(row, name=str, source=str)
    recipe = from_json(dict, row.recipe)
    ones = tuple(recipe.pop("ones"))
    if len(ones) != len(layers) or not all(type(count) is int for count in ones):
        raise ValueError("a mask of other layers")
    if row.bits is None:
        packed = _redraw(layers, ones, recipe)
    else:
        shapes = [(layer.units, layer.fan_in) for layer in layers]
        packed = [pack(torch.from_numpy(array)) for array in decode_bits(row.bits, shapes)]
    if _digest(packed) != row.digest:
        raise ValueError(f"mask {row.name!r} does not have the bits that were written")
    if tuple(int(popcount(each.unsqueeze(0))[0]) for each in packed) != ones:
        raise ValueError(f"mask {row.name!r} does not have as many ones as were written")
    return MaskInfo(row.name, row.source, ones, recipe, row.bits), packed


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
    for each in packed:
        digest.update(each.cpu().contiguous().numpy().data)
    return digest.digest()


def encode_task(task: LearnedTask, backbone: Backbone) -> TaskRow:
    """A task as a row. Raises InputError for one that could not be read again."""
    stored, profile = task.coefficients, task.profile
    recipe = dict(task.history.get("recipe", {}))
    metrics = dict(task.history.get("metrics", {}))
    if "seed" in recipe:  # the one setting that differs from task to task
        metrics["seed"] = recipe.pop("seed")
    row = TaskRow(
        number=task.number,
        name=task.name,
        mask=task.mask,
        num_masks=task.num_masks,
        classes=to_json(list(task.classes)),
        form=_form(stored, task.statistics),
        coefficients=None if stored is None else _joined(stored),
        statistics=None if task.statistics is None else task.statistics.content,
        profile=None if profile is None else _profile_bytes(profile),
        recipe=to_json(recipe),
        metrics=to_json(metrics),
        created_at=str(task.history.get("created_at", "")),
    )
    try:
        decode_task(row, backbone, task.num_masks)
    except UNREADABLE as error:
        raise InputError(f"task {task.name[:80]!r} cannot be kept: {error}") from None
    return row


def decode_task(row: TaskRow, backbone: Backbone, masks: int) -> LearnedTask:
    """The task of a row; masks: how many there are.

    Raises one of UNREADABLE for a row that cannot be a task of this network, whoever wrote it.
    """
    _check_kinds(row, name=str, num_masks=int, created_at=str)
    classes = _labels(row.classes, backbone.most_classes)
    with_head = backbone.own_head is not None
    if (row.coefficients is None) != (row.mask is not None and not with_head):
        raise ValueError("it has neither a mask nor coefficients, or both, or no head")
    form = {} if row.form is None else from_json(dict, row.form)
    by_weight = form.get("granularity") == "weight"
    alone = row.mask is None and (by_weight or with_head)
    if not (0 if alone else 1) <= row.num_masks <= (0 if by_weight else masks):
        raise ValueError(f"it combines {row.num_masks} masks of {masks}")
    if (how := form.get("statistics")) not in (None, "coded"):
        raise ValueError(f"norm statistics of an unknown form {how!r}")
    statistics = None
    if (row.statistics is not None) != backbone.has_task_statistics:
        raise ValueError(f"norm statistics do not fit the norm policy {backbone.norm!r}")
    if row.statistics is not None:
        statistics = restore_statistics(backbone, row.statistics, how == "coded")
    coefficients = None
    if row.coefficients is not None:
        num_masks = row.num_masks if row.mask is None else 0
        coefficients = _split(row.coefficients, form, num_masks, len(classes), backbone)
    metrics, recipe = from_json(dict, row.metrics), from_json(dict, row.recipe)
    if "seed" in metrics:
        recipe = {"seed": metrics.pop("seed"), **recipe}
    version = metrics.get("version", 1)
    if type(version) is not int or version < 1:
        raise ValueError(f"a version {version!r}")
    return LearnedTask(
        row.name,
        classes,
        row.num_masks,
        coefficients,
        row.mask,
        mask_bytes=row.mask_bytes or 0,
        statistics=statistics,
        profile=None if row.profile is None else _profile(row.profile),
        history={"recipe": recipe, "metrics": metrics, "created_at": row.created_at},
        number=row.number,
    )


def encode_projection(projection: Projection) -> bytes:
    """Masks, whether the network itself comes first, components, and the matrix in float16."""
    own = [projection.num_masks, projection.residual, projection.matrix.shape[1]]
    matrix = projection.matrix.cpu().half().contiguous().numpy()
    return np.array(own, "<u4").tobytes() + matrix.tobytes()


def decode_projection(content: bytes, backbone: Backbone) -> Projection:
    """The projection of the network's features. Raises ValueError for one that cannot be."""
    reader = _Reader(content, "a projection of another network's features")
    num_masks, residual, components = np.frombuffer(reader.take(12), "<u4").tolist()
    fan_in = 0 if backbone.own_head is None else backbone.own_head.fan_in
    rows = (num_masks + residual) * fan_in
    if residual > 1 or not 1 <= components <= rows:
        raise ValueError(f"{components} components of {rows} features")
    if rows * components > len(content):  # before so much memory is asked for
        raise ValueError("a projection of another network's features")
    matrix = np.frombuffer(reader.numbers(rows * components), "<f2").reshape(rows, components)
    reader.end()
    kept = torch.from_numpy(matrix.astype(np.float32)).to(backbone.device)
    return Projection(num_masks, bool(residual), kept)


def _check_kinds(row: MaskRow | TaskRow, **kinds: type) -> None:
    """Raises TypeError or ValueError unless columns are of these kinds, and the name not empty."""
    for name, kind in kinds.items():
        if type(getattr(row, name)) is not kind:
            raise TypeError(f"its {name} is no {kind.__name__}")
    if not row.name:
        raise ValueError("its name is empty")


def _labels(text: str, outputs: int | None) -> tuple[Label, ...]:
    """The labels of a task: different 64-bit integers or strings, for so many outputs or any."""
    classes = tuple(from_json(list, text))
    whole = all(type(label) is int and -(2**63) <= label < 2**63 for label in classes)
    if not whole and not all(type(label) is str for label in classes):
        raise ValueError("labels that are neither 64-bit integers nor strings")
    most = len(classes) if outputs is None else outputs
    if not 2 <= len(classes) <= most or len(set(classes)) < len(classes):
        raise ValueError(f"{len(set(classes))} different classes for {outputs} outputs")
    return classes


def _form(stored: StoredCoefficients | None, statistics: StoredStatistics | None) -> str | None:
    """How to read coefficients and coded statistics; None for a mask, or one with plain ones."""
    form: dict[str, Any] = {}
    if stored is not None:
        later: dict[str, Any] = {"tune": [_TUNED[kind] for kind in stored.tune]}
        later["residual"] = stored.residual
        if stored.readout is not None and stored.head:
            own = {"projection": stored.readout.projection, "features": stored.head[0].shape[0]}
            later |= own
        form = {
            "precision": stored.precision,
            "granularity": stored.granularity,
            "output_scale": stored.output_scale is not None,
            "input_scale": stored.input_scale is not None,
        } | {key: value for key, value in later.items() if value}
    if statistics is not None and statistics.code is not None:
        form["statistics"] = "coded"
    return to_json(form) if form else None


def _joined(stored: StoredCoefficients) -> bytes:
    own = (part.payload + part.steps + part.offset for part in stored.parts)
    return b"".join([*own, stored.levels])


def _split(
    content: bytes,
    form: Mapping[str, Any],
    num_masks: int,
    num_classes: int,
    backbone: Backbone,
) -> StoredCoefficients:
    """Coefficients from their bytes; form and network say how many each tensor has.

    num_masks: 0 for a task without alphas, of which a head is kept.
    """
    readout, by_weight = (form["granularity"] == word for word in ("readout", "weight"))
    layers = backbone.layers if num_masks and not readout else ()
    words, residual = form.get("tune", ()), form.get("residual", False)
    tune = tuple(kind for word in words for kind, own in _TUNED.items() if own == word)
    if len(set(tune)) < len(words) or type(residual) is not bool:
        raise ValueError(f"coefficients of an unknown form {dict(form)!r}")
    precision, by_unit = form["precision"], form["granularity"] == "unit"
    scaled = form["output_scale"] or form["input_scale"]
    known = precision in PRECISIONS and form["granularity"] in GRANULARITIES
    if not known or (scaled and (by_weight or readout)):
        raise ValueError(f"coefficients of an unknown form {dict(form)!r}")
    fewest = num_masks * (sum(layer.units for layer in layers) if by_unit else len(layers))
    own = {} if backbone.own_head is None else backbone.own_head.shapes
    fan_in = 0 if backbone.own_head is None else backbone.own_head.fan_in
    if readout:
        fan_in = _features(form, (num_masks + residual) * fan_in)
    heads = [(fan_in, num_classes) if shape else (num_classes,) for shape in own.values()]
    fewest += sum(map(prod, heads))
    if not (0 if by_weight else 1) <= fewest <= 8 * len(content) / _BITS[precision]:
        raise ValueError(f"{num_masks} masks in {len(content)} bytes of coefficients")
    reader = _Reader(content, "coefficients of another network")
    alpha = tuple(
        _tensor(reader, (num_masks, layer.units) if by_unit else (num_masks,), precision, False)
        for layer in layers
    )
    outputs = inputs = None
    if form["output_scale"]:
        outputs = tuple(_tensor(reader, (layer.units,), precision, True) for layer in layers)
    if form["input_scale"]:
        inputs = tuple(_tensor(reader, (layer.shape[1],), precision, True) for layer in layers)
    head = tuple(_tensor(reader, shape, precision, False) for shape in heads) or None
    small = tuple(
        _tensor(reader, (sum(prod(each.shape) for each in group),), precision, False)
        for group in backbone.small_parameters(tune)
    )
    reads = Readout(num_masks, form.get("projection", 0)) if readout else None
    weights = None
    if by_weight:
        shapes = [(layer.units, layer.fan_in) for layer in backbone.layers]
        found = (_tensor(reader, shape, precision, False) for shape in shapes)
        weights = tuple(replace(each, is_matrix=True) for each in found)
    parts = (alpha, outputs, inputs, head, small or None, tune, residual, reads, weights)
    if precision != "coded":
        reader.end()
        return StoredCoefficients(precision, *parts)
    stored = StoredCoefficients(precision, *parts, levels=reader.rest())
    stored.restore()  # only decoding tells whether the code is whole
    return stored


def _features(form: Mapping[str, Any], most: int) -> int:
    """How many numbers a readout reads, of so many features at most."""
    features, projection = form["features"], form.get("projection", 0)
    if type(features) is not int or type(projection) is not int or projection < 0:
        raise ValueError(f"coefficients of an unknown form {dict(form)!r}")
    if not 1 <= features <= most or (features < most and not projection):
        raise ValueError(f"a readout of {features} features of {most}")
    return features


def _tensor(reader: _Reader, shape: tuple[int, ...], precision: str, centred: bool) -> StoredTensor:
    if precision == "coded":
        return StoredTensor(shape, reader.take(MODEL_BYTES), reader.steps(1), reader.numbers(1))
    if precision in ("float32", "float16"):
        return StoredTensor(shape, reader.numbers(prod(shape), precision))
    payload = reader.take(-(-prod(shape) * int(_BITS[precision]) // 8))
    steps = reader.steps(prod(shape[1:]))
    return StoredTensor(shape, payload, steps, reader.numbers(1) if centred else b"")


class _Reader:
    """Takes one piece of a content after another; of: what it is if it has another length."""

    def __init__(self, content: bytes, of: str) -> None:
        self._content, self._of, self._place = content, of, 0

    def take(self, size: int) -> bytes:
        piece = self._content[self._place : self._place + size]
        if len(piece) != size:
            raise ValueError(self._of)
        self._place += size
        return piece

    def numbers(self, count: int, kind: str = "float16") -> bytes:
        piece = self.take(count * np.dtype(kind).itemsize)
        if not np.isfinite(np.frombuffer(piece, kind)).all():
            raise ValueError("coefficients that are NaN or infinite")
        return piece

    def steps(self, count: int) -> bytes:
        piece = self.numbers(count)
        if not (np.frombuffer(piece, "float16") > 0).all():
            raise ValueError("rounding steps that are not positive")
        return piece

    def rest(self) -> bytes:
        return self._content[self._place :]

    def end(self) -> None:
        if self.rest():
            raise ValueError(self._of)


def _profile_bytes(profile: TaskProfile) -> bytes:
    entropies = np.array([profile.own_entropy, profile.shuffled_entropy], dtype="<f2").tobytes()
    if (kept := profile.inputs) is None:
        return entropies
    if not kept.has_few_features:
        return entropies + bytes(kept.groups) + np.array(kept.numbers, dtype="<f2").tobytes()
    numbers = np.array([*kept.moments, kept.spread, *kept.limits], dtype="<f2").tobytes()
    count = len(kept.steps)
    levels = np.array(kept.steps, dtype="i1").tobytes()
    return entropies + numbers + bytes([count]) + levels + bytes(count % 2)  # so odd in all


def _profile(content: bytes) -> TaskProfile:
    """Four bytes in older stores, and where nothing is known of the inputs."""
    own, foreign = np.frombuffer(content[:4], dtype="<f2").tolist()
    if not all(0 <= entropy <= MOST_ENTROPY for entropy in (own, foreign)):
        raise ValueError(f"entropies that cannot be: {own}, {foreign}")
    if len(content) == 4:
        return TaskProfile(own, foreign)
    if len(content) % 2:
        numbers, count = np.frombuffer(content[4:20], dtype="<f2"), content[20]
        steps = np.frombuffer(content[21 : 21 + count], dtype="i1")
        found = InputStatistics.of_few_features(steps.tolist(), numbers.tolist())
    else:
        numbers = np.frombuffer(content[4 + QUIET :], dtype="<f2")
        found = InputStatistics.of(list(content[4 : 4 + QUIET]), numbers.tolist())
    if len(content) != 4 + found.nbytes:
        raise ValueError(f"a profile of {len(content)} bytes")
    no_step = found.has_few_features and not found.spread > 0
    if not np.isfinite(numbers).all() or abs(found.moments[-1]) >= 1 or no_step:
        raise ValueError("a profile of numbers that cannot be")
    return TaskProfile(own, foreign, found)
