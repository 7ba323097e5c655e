"""What masks cover of a network, parameter by parameter, and why not the others."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from impresslearn.networks.backbone import Backbone
from impresslearn.networks.layers import MASKABLE, Candidate, HeadKind, candidates, is_norm
from impresslearn.networks.registry import adapt


def masking_report(
    network: nn.Module | Backbone,
    *,
    skip: Collection[str] = (),
    include: Collection[str] | None = None,
    head: HeadKind = "own",
) -> str:
    """A table of what masks cover of a backbone, or would cover of a module given to `adapt`.

    A row names a layer or parameter, its shape, and "masked" or the reason why it is not masked.

    - `network`: a backbone, or a module, of which a copy is adapted.
    - `skip`, `include`, `head`: as of `adapt`, for a module.

    Raises InputError as `adapt`.
    """
    if not isinstance(network, Backbone):
        network = adapt(network, skip=skip, include=include, head=head)
    masked = {layer.name for layer in network.layers}
    layers_of: dict[str, list[Candidate]] = {}
    for candidate in candidates(network.module):
        layers_of.setdefault(candidate.names[0], []).append(candidate)
    rows: list[tuple[str, tuple[int, ...], str]] = []
    for name, parameter in network.module.named_parameters():
        if name not in layers_of or (network.own_head and name in network.own_head.shapes):
            rows.append((name, tuple(parameter.shape), _reason(network, name)))
            continue
        for candidate in layers_of[name]:
            layer = candidate.layer
            reason = "left out by include or skip"
            if layer.name in masked:
                reason = "masked"
            elif candidate.is_embedding:
                reason = "embedding, or tied to one, and not included"
            rows.append((layer.name, layer.shape, reason))
    width = max(len(name) for name, *_ in rows)
    lines = []
    for name, shape, reason in rows:
        lines.append(f"{name:{width}}  {'×'.join(map(str, shape)) or '1':>16}  {reason}")
    share = network.num_maskable / network.num_parameters
    total = f"{network.num_maskable:,} of {network.num_parameters:,}"
    return "\n".join([*lines, f"{total} numbers masked ({share:.1%})"])


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
