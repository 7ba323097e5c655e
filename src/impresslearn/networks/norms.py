"""Norm policies: which statistics normalise a network's activations, and what each task keeps.

| policy | statistics at prediction | kept |
|---|---|---|
| none | the network has no batch norm | nothing |
| batch | mean and variance of the batch at hand | nothing |
| per_task | running mean and variance of each task | 2 floats per channel and task, or their code |
| shared | one running mean and variance for all tasks | 2 floats per channel, once |
| group | group norm: mean and variance of the single input | nothing |

`register_norm` adds your own policy. Instance norms normalise in prediction as in learning,
under every policy: by the running statistics that they were trained with, or where they have none
by the input at hand. Norms have no trainable weights here: our own have none, others stay frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm

from impresslearn.checks import check_choice
from impresslearn.errors import InputError

MOST_GROUPS = 32
"""Groups of group norm, as in Wu and He, "Group Normalization" (2018), where they divide."""


@dataclass(frozen=True)
class NormPolicy:
    """How a network is normalised under a policy, and who keeps running statistics.

    - `layer`: channels -> norm layer over maps (n, channels, height, width), for networks built by
      name; None if the policy builds none.
    - `convert`: brings the batch norms of an adapted module under the policy, in place; None if
      that cannot be done.
    - `tracked`: whether batch norms keep running statistics, for every task its own.
    - `shared`: whether the first task learned gathers the statistics for all tasks instead.
    """

    layer: Callable[[int], nn.Module] | None = None
    convert: Callable[[nn.Module], object] | None = None
    tracked: bool = False
    shared: bool = False


_policies: dict[str, NormPolicy] = {}


def register_norm(name: str, policy: NormPolicy) -> None:
    """Makes a policy available to `create_backbone` and `adapt` as `norm=name`.

    - `name`: a name that is not taken.
    - `policy`: with `layer` it builds networks that ask for a norm layer (resnet18 and resnet50);
      with `convert` it takes over the batch norms of a module.

    Raises InputError for a name that is taken.
    """
    if name in _policies:
        raise InputError(f"a norm policy named {name!r} is registered already")
    if not isinstance(policy, NormPolicy):
        raise InputError(f"policy must be a NormPolicy, got {type(policy).__name__}")
    _policies[name] = policy


def list_norms(buildable: bool = False) -> list[str]:
    """The names of all policies, or of those that can build a norm layer."""
    return [name for name, policy in _policies.items() if policy.layer or not buildable]


def find_norm(
    name: str, choices: Sequence[str] | None = None, owner: str = "a backbone"
) -> NormPolicy:
    """The policy of that name. Raises InputError unless `owner` can have it."""
    choices = list_norms() if choices is None else choices
    return _policies[check_choice(f"norm of {owner}", name, choices)]


def make_norm(channels: int, norm: str) -> nn.Module:
    """A norm layer over maps (n, channels, height, width). Raises InputError for "none"."""
    policy = find_norm(norm, list_norms(buildable=True), "a norm layer")
    return policy.layer(channels)  # type: ignore[misc]


def batch_norms(module: nn.Module) -> list[tuple[str, _BatchNorm]]:
    """The batch norms in the module with their qualified names, in order."""
    return [(name, m) for name, m in module.named_modules() if isinstance(m, _BatchNorm)]


def untrained(module: nn.Module) -> bool:
    """Whether batch norms keep running statistics and have gathered none: mean 0, variance 1."""
    tracked = [norm for _, norm in batch_norms(module) if norm.running_mean is not None]
    return bool(tracked) and all(map(_is_new, tracked))


def statistic_names(module: nn.Module) -> tuple[str, ...]:
    """Qualified names of the running means and variances, in order."""
    return tuple(
        f"{name}.{kind}" if name else kind
        for name, norm in batch_norms(module)
        for kind in ("running_mean", "running_var")
        if getattr(norm, kind) is not None
    )


def drop_counters(module: nn.Module) -> None:
    """Make batch norms keep exponential averages only (momentum 0.1 for cumulative ones), in place.

    The counter of batches is one more buffer that a forward pass would change.
    """
    for _, norm in batch_norms(module):
        norm.num_batches_tracked = None
        if norm.momentum is None:
            norm.momentum = 0.1


def drop_statistics(module: nn.Module) -> None:
    """Make every batch norm use the statistics of its batch, in training and after, in place."""
    for _, norm in batch_norms(module):
        _drop(norm)


def settle_instance_norms(module: nn.Module) -> None:
    """Make instance norms of a module in its mode normalise the same in every mode, in place.

    By running statistics, unless there are none or they are as new, mean 0 and variance 1.
    """
    for norm in module.modules():
        if isinstance(norm, _InstanceNorm) and norm.running_mean is not None:
            if _is_new(norm):
                _drop(norm)
            else:
                norm.eval()


def convert_batch_norms(module: nn.Module, norm: str) -> str:
    """Brings the batch norms of a network (a copy of the user's) under a policy; returns its name.

    It is "none" for a network without batch norm, and "batch" where batch norms without running
    statistics leave nothing to keep. Raises InputError for a policy that is unknown, or that
    cannot take over batch norm.
    """
    policy = find_norm(norm)
    if not batch_norms(module):
        return "none"
    if policy.convert is None:
        able = " or ".join(name for name, known in _policies.items() if known.convert)
        raise InputError(f"batch norm cannot be brought under norm {norm!r}; choose {able}")
    policy.convert(module)
    return norm if statistic_names(module) or not policy.tracked else "batch"


def _drop(norm: _NormBase) -> None:
    norm.running_mean = norm.running_var = norm.num_batches_tracked = None
    norm.track_running_stats = False


def _is_new(norm: _NormBase) -> bool:
    mean, variance = norm.running_mean, norm.running_var
    return bool((mean == 0).all() and (variance == 1).all())  # type: ignore[union-attr]


def _group_norm(channels: int) -> nn.Module:
    """Group norm with four channels per group: one alone would erase maps of a single pixel."""
    most = max(1, min(channels // 4, MOST_GROUPS))
    groups = max(g for g in range(1, most + 1) if channels % g == 0)
    return nn.GroupNorm(groups, channels, affine=False)


_tracking = partial(nn.BatchNorm2d, affine=False)
_by_batch = partial(nn.BatchNorm2d, affine=False, track_running_stats=False)
register_norm("none", NormPolicy())
register_norm("batch", NormPolicy(_by_batch, drop_statistics))
register_norm("per_task", NormPolicy(_tracking, batch_norms, tracked=True))
register_norm("shared", NormPolicy(_tracking, batch_norms, tracked=True, shared=True))
register_norm("group", NormPolicy(_group_norm))
