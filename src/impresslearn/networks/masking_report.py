"""What masks cover of a network, parameter by parameter, and why not the others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvTransposeNd
from torch.nn.utils.parametrize import ParametrizationList

from impresslearn.errors import InputError
from impresslearn.networks.backbone import Backbone
from impresslearn.networks.heads import Head, HeadKind
from impresslearn.networks.layers import MASKABLE, candidates, chosen_candidates, is_norm

OWN_HEAD = "replaced by a head of every task's own"
COMPUTED = "computed weight"
REASONS = {
    "": "left out by include or skip",
    "embedding": "embedding, if not included",
    "tied": "tied to an embedding, if not included",
    "computed": COMPUTED,
}
"""Why a layer that could be masked is not, by its kind."""


@dataclass(frozen=True)
class ReportRow:
    """A parameter, or the part of one that a layer is.

    - `name`, `shape`: as masks see it, (units, fan-in …), if it is masked.
    - `numbers`: how many numbers it holds.
    - `reason`: why it is not masked, "" if it is.
    - `shared`: its other names.
    """

    name: str
    shape: tuple[int, ...]
    numbers: int
    reason: str = ""
    shared: tuple[str, ...] = ()


class MaskingReport:
    """The weights that masks cover, the rest, and why; prints as a table.

    Every parameter is there once, tied ones under their first name.
    """

    def __init__(self, name: str, rows: Collection[ReportRow]) -> None:
        self.name = name
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
        counts: dict[str, int] = {}
        for row in self._rows:
            if row.reason:
                counts[row.reason] = counts.get(row.reason, 0) + row.numbers
        return counts

    def __repr__(self) -> str:
        lines = []
        width = max(len(row.name) for row in self._rows)
        for row in self._rows:
            shape = "×".join(map(str, row.shape)) or "1"
            note = row.reason or "masked"
            note += f", shared by {', '.join(row.shared)}" if row.shared else ""
            lines.append(f"{row.name:{width}}  {shape:>16}  {note}")
        total = sum(row.numbers for row in self._rows)
        share = self.masked / total if total else 0.0
        lines.append(f"{self.name}: {self.masked:,} of {total:,} numbers masked ({share:.1%})")
        return "\n".join(lines)


def masking_report(
    network: nn.Module | Backbone,
    *,
    skip: Collection[str] = (),
    include: Collection[str] | None = None,
    head: HeadKind = "own",
) -> MaskingReport:
    """What masks cover of a backbone, or would cover of a module given to `adapt`.

    - `network`: a backbone or a module.
    - `skip`, `include`, `head`: as of `adapt`, for a module.

    Raises InputError for anything else, for names that fit no weight, and for a module with lazy
    parameters or a last layer that cannot be replaced.
    """
    if isinstance(network, Backbone):
        if skip or include is not None:
            raise InputError("skip and include are for a module; a backbone has its layers")
        module, name, own_head = network.module, network.name, network.own_head
        masked = {layer.name for layer in network.layers}
    elif isinstance(network, nn.Module):
        module, name = network, type(network).__name__
        chosen = chosen_candidates(candidates(module), skip, include)
        own_head = Head.of(module) if head == "own" else None
        masked = {choice.layer.name for choice in chosen if choice.kind != "computed"}
    else:
        raise InputError(
            f"masking_report takes an nn.Module or a Backbone, got {type(network).__name__}"
        )
    replaced = set(own_head.shapes) if own_head else set()
    return MaskingReport(name, _rows(module, masked - replaced, replaced))


def _rows(module: nn.Module, masked: Collection[str], replaced: Collection[str]) -> list[ReportRow]:
    layers_of: dict[str, list[Any]] = {}
    for candidate in candidates(module):
        layers_of.setdefault(candidate.names[0], []).append(candidate)
    rows = []
    for name, parameter in module.named_parameters():
        here = layers_of.get(name, [])
        if not here:
            reason = OWN_HEAD if name in replaced else _reason(module, name)
            rows.append(ReportRow(name, tuple(parameter.shape), parameter.numel(), reason))
        if len(here) > 1 and not here[0].layer.part:
            # An embedding and a layer tied to it are one parameter: one row, the masked one.
            here = [one for one in here if one.layer.name in masked] or here[:1]
        for candidate in here:
            layer = candidate.layer
            reason = "" if layer.name in masked else REASONS[candidate.kind]
            reason = OWN_HEAD if layer.name in replaced else reason
            others = tuple(other for other in candidate.names if other != layer.parameter)
            rows.append(ReportRow(layer.name, layer.shape, layer.numel, reason, others))
    return rows


def _reason(module: nn.Module, name: str) -> str:
    """Why a parameter that could never be masked is not."""
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
