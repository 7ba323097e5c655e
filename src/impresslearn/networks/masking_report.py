"""What masks cover of a network, parameter by parameter, why not the others, and a task's bytes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvTransposeNd
from torch.nn.utils.parametrize import ParametrizationList

from impresslearn.errors import InputError
from impresslearn.networks.backbone import Backbone
from impresslearn.networks.heads import TUNED, Head, HeadKind, TunedKind, small_parameters
from impresslearn.networks.layers import (
    MASKABLE,
    Candidate,
    candidates,
    chosen_candidates,
    is_norm,
)

OWN_HEAD = "replaced by a head of every task's own"
COMPUTED = "computed weight"
REASONS = {
    "": "left out by include or skip",
    "embedding": "embedding, if not included",
    "tied": "tied to an embedding, if not included",
    "computed": COMPUTED,
}
"""Why a candidate is not masked, by its kind."""
PRESET_MASKS, SHOWN_CLASSES = 16, 10
"""Of the preset "pretrained", and of the task whose bytes are shown."""


@dataclass(frozen=True)
class ReportRow:
    """A parameter, or what masks cover of one.

    name, shape: as masks see it, (units, fan-in …), where it is masked; units: None where it is
    not; numbers: in it; reason: why it is not masked, "" where it is; shared: its other names;
    tune: the word of `ImpressLearner`'s tune that lets a task change it.
    """

    name: str
    shape: tuple[int, ...]
    units: int | None
    numbers: int
    reason: str = ""
    shared: tuple[str, ...] = ()
    tune: TunedKind | None = None


class MaskingReport:
    """What is masked of a network, what is left and why; prints as a table.

    Every parameter is there once, tied ones under their first name. head: what every task has in
    place of the last layer, or None.
    """

    def __init__(self, name: str, rows: Collection[ReportRow], head: Head | None = None) -> None:
        self.name = name
        self.head = head
        self._rows = tuple(rows)

    def rows(self) -> list[dict[str, Any]]:
        """The fields of `ReportRow` as plain values, in module order."""
        return [asdict(row) for row in self._rows]

    @property
    def masked(self) -> int:
        """Weights that masks cover."""
        return sum(row.numbers for row in self._rows if not row.reason)

    @property
    def left(self) -> dict[str, int]:
        """Numbers that stay frozen, by reason."""
        found: dict[str, int] = {}
        for row in self._rows:
            if row.reason:
                found[row.reason] = found.get(row.reason, 0) + row.numbers
        return found

    def task_shapes(
        self, num_classes: int = SHOWN_CLASSES, masks: int = PRESET_MASKS
    ) -> dict[str, list[tuple[int, ...]]]:
        """The tensors that a task learns with coefficients per unit and all that can be tuned.

        Keys: coefficients, (masks, units) a layer; head; norms, all scales and all shifts; biases.
        """
        heads = self.head.shapes.values() if self.head else ()
        tuned: dict[tuple[str, bool], int] = {}
        for row in self._rows:
            if row.tune:
                key = row.tune, row.name.endswith("bias")
                tuned[key] = tuned.get(key, 0) + row.numbers
        return {
            "coefficients": [(masks, row.units) for row in self._rows if row.units],
            "head": [(prod(each), num_classes) if each else (num_classes,) for each in heads],
            "norms": [(count,) for (kind, _), count in tuned.items() if kind == "norm"],
            "biases": [(count,) for (kind, _), count in tuned.items() if kind == "bias"],
        }

    def _bytes_line(self) -> str:
        """What a task costs under the preset "pretrained"."""
        found = self.task_shapes()
        numbers = {name: sum(map(prod, shapes)) for name, shapes in found.items()}
        every = [shape for shapes in found.values() for shape in shapes]
        # Half a byte a number, and a step of float16 a column, as `quantisation` rounds.
        rounded = sum(-(-prod(shape) // 2) + 2 * prod(shape[1:]) for shape in every)
        told = ", ".join(f"{count:,} {name}" for name, count in numbers.items() if count)
        return (
            f'under the preset "pretrained" a task of {SHOWN_CLASSES} classes learns {told}: '
            f"{4 * sum(numbers.values()):,} bytes as float32, {rounded:,} bytes as int4; coded, as "
            "the preset has them, what the task needs of that, which tasks_[name].bytes tells"
        )

    def __repr__(self) -> str:
        layers = [row for row in self._rows if not row.reason]
        units, total = sum(row.units or 0 for row in layers), sum(r.numbers for r in self._rows)
        lines = [("parameter", "shape", "units", "numbers", "")]
        for row in self._rows:
            note = row.reason or "masked"
            note += f", shared by {', '.join(row.shared)}" if row.shared else ""
            note += f', with tune=("{row.tune}",)' if row.tune else ""
            shape = "×".join(map(str, row.shape)) or "1"
            lines.append((row.name, shape, str(row.units or ""), f"{row.numbers:,}", note))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            f"{name:{widths[0]}}  {shape:>{widths[1]}}  {own:>{widths[2]}}  "
            f"{numbers:>{widths[3]}}  {note}".rstrip()
            for name, shape, own, numbers, note in lines
        ]
        share = self.masked / total if total else 0.0
        table.append(
            f"{self.name}: {self.masked:,} of {total:,} numbers masked ({share:.1%}), in "
            f"{len(layers)} layers of {units:,} units"
        )
        if self.left:
            counts = ", ".join(f"{count:,} {reason}" for reason, count in self.left.items())
            table.append(f"left: {counts}")
        if self.head:
            table.append(self._bytes_line())
        return "\n".join(table)


def masking_report(
    network: nn.Module | Backbone,
    *,
    skip: Collection[str] = (),
    include: Collection[str] | None = None,
    head: HeadKind = "own",
) -> MaskingReport:
    """What masks cover of a backbone, or would cover of a module that `adapt` is given.

    skip, include, head: as of `adapt`, for a module. Raises InputError for anything else, for names
    that fit no weight, and for a module with lazy parameters or a last layer that cannot be
    replaced.
    """
    own: Head | None
    if isinstance(network, Backbone):
        if skip or include is not None:
            raise InputError("skip and include are for a module; a backbone has its layers")
        module, name = network.module, network.name
        names = {layer.name for layer in network.layers}
        own = network.own_head
        masked = [each for each in candidates(module) if each.layer.name in names]
    elif isinstance(network, nn.Module):
        module, name = network, type(network).__name__
        chosen = chosen_candidates(candidates(module), skip, include)
        own = Head.of(module) if head == "own" else None
        masked = [each for each in chosen if each.kind != "computed"]
    else:
        raise InputError(
            f"masking_report takes an nn.Module or a Backbone, got {type(network).__name__}"
        )
    replaced = own.shapes if own else ()
    masked = [each for each in masked if each.layer.name not in replaced]
    return MaskingReport(name, _rows(module, masked, own), own)


def _rows(module: nn.Module, masked: Collection[Candidate], own: Head | None) -> list[ReportRow]:
    head, groups = own.shapes if own else (), small_parameters(module, own)
    tuned = {each.name: kind for kind, group in groups if kind in TUNED for each in group}
    found: dict[str, list[Candidate]] = {}
    for each in candidates(module):
        found.setdefault(each.names[0], []).append(each)
    rows = []
    for name, parameter in module.named_parameters():
        here = found.get(name, [])
        if not here:
            why = OWN_HEAD if name in head else _reason(module, name)
            shape, tune = tuple(parameter.shape), tuned.get(name)
            rows.append(ReportRow(name, shape, None, parameter.numel(), why, tune=tune))
        if len(here) > 1 and here[0].layer.part == "":  # an embedding and a layer tied to it
            here = [each for each in here if each in masked] or here[:1]
        for each in here:
            layer, kept = each.layer, each in masked
            others = tuple(other for other in each.names if other != layer.parameter)
            units, why = (layer.units, "") if kept else (None, REASONS[each.kind])
            why = OWN_HEAD if layer.name in head else why
            rows.append(ReportRow(layer.name, layer.shape, units, layer.numel, why, others))
    return rows


def _reason(module: nn.Module, name: str) -> str:
    """Why a parameter that is no candidate is not masked."""
    prefix, _, short = name.rpartition(".")
    owner = module.get_submodule(prefix)
    if isinstance(owner, ParametrizationList):
        return COMPUTED
    if is_norm(owner):
        return "norm"
    if short.startswith("bias") or short.endswith("bias"):
        return "bias"
    if isinstance(owner, MASKABLE):  # weight_g, weight_orig and the like
        return COMPUTED
    if isinstance(owner, _ConvTransposeNd):
        return "transposed convolution"
    if isinstance(owner, (nn.RNNBase, nn.RNNCellBase)):
        return "recurrent layer"
    return f"parameter of {type(owner).__name__}"
