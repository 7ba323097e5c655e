"""Norm policies: which statistics normalise a network's activations, and what each task keeps.

| policy | statistics at prediction | kept |
|---|---|---|
| none | the network has no batch norm | nothing |
| batch | mean and variance of the batch at hand | nothing |
| per_task | running mean and variance of each task | 2 floats per channel and task, or their code |
| shared | one running mean and variance for all tasks | 2 floats per channel, once |
| group | group norm: mean and variance of the single input | nothing |

Instance norms normalise in prediction as in learning, under every policy: by their running
statistics, or by the input at hand if they keep none.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from impresslearn.checks import check_choice

# Groups of group norm, as in Wu and He, "Group Normalization" (2018), where they divide.
MAX_GROUPS = 32


class NormPolicy(NamedTuple):
    """One norm policy.

    - `build`: makes a norm layer for a number of channels; None for networks without norms.
    - `kept_by`: whose running statistics it keeps: "task" for each, "all" for one set, or None.
    """

    build: Callable[[int], nn.Module] | None
    kept_by: Literal["task", "all"] | None


def _group_norm(channels: int) -> nn.Module:
    # Four channels per group: one alone would erase maps of a single pixel.
    most = max(1, min(channels // 4, MAX_GROUPS))
    groups = max(count for count in range(1, most + 1) if channels % count == 0)
    return nn.GroupNorm(groups, channels, affine=False)


# Our own norms have no scales and shifts, which no mask would cover.
_tracking_norm = partial(nn.BatchNorm2d, affine=False)
_norm_by_batch = partial(nn.BatchNorm2d, affine=False, track_running_stats=False)

# All policies by name: a new one is an entry here.
POLICIES: dict[str, NormPolicy] = {
    "none": NormPolicy(None, None),
    "batch": NormPolicy(_norm_by_batch, None),
    "per_task": NormPolicy(_tracking_norm, "task"),
    "shared": NormPolicy(_tracking_norm, "all"),
    "group": NormPolicy(_group_norm, None),
}


def buildable() -> dict[str, Callable[[int], nn.Module]]:
    """What makes a norm layer, for networks that are built by name; by policies that have one."""
    return {name: policy.build for name, policy in POLICIES.items() if policy.build is not None}


def make_norm(channels: int, norm: str) -> nn.Module:
    """A norm layer over maps (n, channels, height, width). Raises InputError for "none"."""
    builders = buildable()
    return builders[check_choice("norm of a norm layer", norm, builders)](channels)


class LocalBatchNorm(_BatchNorm):
    """A batch norm over inputs of any number of dimensions, in one process."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass


def batch_norms(module: nn.Module) -> list[tuple[str, _BatchNorm]]:
    """The batch norms in the module, in order, with what their parameters' names begin with."""
    norms = []
    for name, child in module.named_modules():
        if isinstance(child, _BatchNorm):
            # A module that is itself a batch norm has the name "".
            norms.append((f"{name}." if name else "", child))
    return norms


def untrained(module: nn.Module) -> bool:
    """Whether batch norms keep running statistics and have gathered none: mean 0, variance 1."""
    names = statistic_names(module)
    first = {name: 1.0 if name.endswith("running_var") else 0.0 for name in names}
    return bool(names) and all((module.get_buffer(name) == first[name]).all() for name in names)


def statistic_names(module: nn.Module) -> tuple[str, ...]:
    """Qualified names of the running means and variances, in order."""
    names: list[str] = []
    for prefix, norm in batch_norms(module):
        if norm.running_mean is not None:
            names += [f"{prefix}running_mean", f"{prefix}running_var"]
    return tuple(names)


def drop_statistics(module: nn.Module) -> None:
    """Make every batch norm use the statistics of its batch, in training and after, in place."""
    for _, norm in batch_norms(module):
        norm.running_mean = norm.running_var = norm.num_batches_tracked = None
        norm.track_running_stats = False


def convert_batch_norms(module: nn.Module, norm: str) -> str:
    """Brings the batch norms of a network (a copy of the user's) under a policy; returns its name.

    It is "none" for a network without batch norm, and "batch" if its batch norms keep no running
    statistics. Raises InputError for a policy that is unknown or cannot take over batch norm.
    """
    check_choice("norm of a backbone", norm, POLICIES)
    if not batch_norms(module):
        return "none"
    check_choice("norm of a network with batch norm", norm, ("batch", "per_task", "shared"))
    if norm == "batch":
        drop_statistics(module)
    return norm if statistic_names(module) else "batch"
