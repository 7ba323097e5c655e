"""What normalisation may keep for each task: the norm policies of a backbone.

| policy | statistics at prediction | kept |
|---|---|---|
| none | the network has no batch norm | nothing |
| batch | those of the batch at hand | nothing |
| per_task | running mean and variance of each task | 2 floats a channel and task |
| shared | one running mean and variance for all tasks | 2 floats a channel, once |
| group | group norm: those of the single input | nothing |

Instance norms normalise in prediction as in learning, under every policy: by the running statistics
that they were trained with, or where they have none by the input at hand.

`make_norm` builds the layers of the library's own networks, `convert_batch_norms` brings a trained
network under a policy. Both leave weights alone: own norms have none, trained ones stay frozen.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm

from impresslearn.errors import InputError

NORMS = ("none", "batch", "per_task", "shared", "group")
TRACKED = ("per_task", "shared")
"""The policies with running statistics."""

MOST_GROUPS = 32
"""Groups of group norm, as in Wu and He, "Group Normalization" (2018), where they divide."""

DEFAULT_MOMENTUM = 0.1


def check_norm(norm: str, choices: Sequence[str] = NORMS, owner: str = "a backbone") -> None:
    """Raise InputError unless `norm` is one of the policies that `owner` can have."""
    if norm not in choices:
        raise InputError(f"norm of {owner} must be {' or '.join(choices)}, got {norm!r}")


def make_norm(channels: int, norm: str) -> nn.Module:
    """A norm layer without weights over (n, channels, height, width) maps.

    Group norm takes the largest number of groups up to 32 that divides `channels` and leaves four
    channels a group: a group of a single channel would erase maps of a single pixel.
    Raises InputError for "none" and unknown policies.
    """
    check_norm(norm, NORMS[1:], "a norm layer")
    if norm == "group":
        most = max(1, min(channels // 4, MOST_GROUPS))
        groups = max(g for g in range(1, most + 1) if channels % g == 0)
        return nn.GroupNorm(groups, channels, affine=False)
    return nn.BatchNorm2d(channels, affine=False, track_running_stats=norm in TRACKED)


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
    """Make batch norms keep exponential averages only, in place.

    The counter of batches is one more buffer that a forward pass would change, and is needed only
    for cumulative averages (momentum None), which become exponential ones of momentum 0.1.
    """
    for _, norm in batch_norms(module):
        norm.num_batches_tracked = None
        if norm.momentum is None:
            norm.momentum = DEFAULT_MOMENTUM


def drop_statistics(module: nn.Module) -> None:
    """Make every batch norm use the statistics of its batch, in training and after, in place."""
    for _, norm in batch_norms(module):
        _drop(norm)


def settle_instance_norms(module: nn.Module) -> None:
    """Make instance norms normalise the same in every mode, in place.

    To be called on a module in its mode: by running statistics, unless there are none or they are
    as new, mean 0 and variance 1.
    """
    for norm in module.modules():
        if isinstance(norm, _InstanceNorm) and norm.running_mean is not None:
            if _is_new(norm):
                _drop(norm)
            else:
                norm.eval()


def convert_batch_norms(module: nn.Module, norm: str) -> str:
    """Bring the batch norms of a network (a copy of the user's) under a policy; return it.

    "batch" drops the running statistics; "per_task" and "shared" keep them, as every task's start
    or as they are. The policy that comes back is "none" for a network without batch norm, and
    "batch" where batch norms without running statistics leave nothing to keep.
    Raises InputError for "group" and "none" where there is batch norm, and unknown policies.
    """
    check_norm(norm)
    if not batch_norms(module):
        return "none"
    if norm == "group":
        raise InputError(
            "adapt cannot turn trained batch norm into group norm; choose batch, per_task or shared"
        )
    if norm == "none":
        raise InputError("the module has batch norm; choose norm batch, per_task or shared")
    if norm == "batch":
        drop_statistics(module)
    return norm if statistic_names(module) else "batch"


def _drop(norm: _NormBase) -> None:
    norm.running_mean = norm.running_var = norm.num_batches_tracked = None
    norm.track_running_stats = False


def _is_new(norm: _NormBase) -> bool:
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    return bool((mean == 0).all() and (variance == 1).all())
