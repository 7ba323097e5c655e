"""What masks cover of a network, parameter by parameter, and why not the others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import nn

from impresslearn.networks.backbone import Backbone
from impresslearn.networks.layers import MASKABLE, Candidate, HeadKind, candidates, is_norm
from impresslearn.networks.registry import adapt


@dataclass(frozen=True)
class MaskingReport:
    """A table of a network's parameters; printing it shows the table.

    - `rows`: (layer or parameter, shape, numbers, "" or why it is not masked), each once.
    """

    rows: tuple[tuple[str, tuple[int, ...], int, str], ...]

    def __repr__(self) -> str:
        lines, masked, total = [], 0, 0
        width = max(len(name) for name, *_ in self.rows)
        for name, shape, numbers, reason in self.rows:
            sizes = "×".join(map(str, shape)) or "1"
            lines.append(f"{name:{width}}  {sizes:>16}  {reason or 'masked'}")
            total += numbers
            masked += 0 if reason else numbers
        lines.append(f"{masked:,} of {total:,} numbers masked ({masked / total:.1%})")
        return "\n".join(lines)


def masking_report(
    network: nn.Module | Backbone,
    *,
    skip: Collection[str] = (),
    include: Collection[str] | None = None,
    head: HeadKind = "own",
) -> MaskingReport:
    """What masks cover of a backbone, or would cover of a module given to `adapt`.

    - `network`: a backbone, or a module, of which a copy is adapted.
    - `skip`, `include`, `head`: as of `adapt`, for a module.

    Raises InputError as `adapt`.
    """
    if not isinstance(network, Backbone):
        network = adapt(network, skip=skip, include=include, head=head)
    module, masked = network.module, {layer.name for layer in network.layers}
    layers_of: dict[str, list[Candidate]] = {}
    for candidate in candidates(module):
        layers_of.setdefault(candidate.names[0], []).append(candidate)
    rows = []
    for name, parameter in module.named_parameters():
        for candidate in layers_of.get(name, []):
            layer = candidate.layer
            reason = "left out by include or skip"
            if candidate.is_embedding:
                reason = "embedding, or tied to one, and not included"
            if layer.name in masked:
                reason = ""
            elif network.own_head and layer.name in network.own_head.shapes:
                reason = "replaced by the task's own head"
            rows.append((layer.name, layer.shape, layer.numel, reason))
        if name not in layers_of:
            reason = _reason(network, name)
            rows.append((name, tuple(parameter.shape), parameter.numel(), reason))
    return MaskingReport(tuple(rows))


def _reason(network: Backbone, name: str) -> str:
    """Why a parameter that could never be masked is not."""
    if network.own_head and name in network.own_head.shapes:
        return "replaced by the task's own head"
    prefix, _, short = name.rpartition(".")
    owner = network.module.get_submodule(prefix)
    if is_norm(owner):
        return "norm"
    if short.startswith("bias") or short.endswith("bias"):
        return "bias"
    if isinstance(owner, MASKABLE) or ".parametrizations." in name:
        return "computed weight"
    return f"parameter of {type(owner).__name__}"
