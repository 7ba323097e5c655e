"""Norm policies: which statistics normalise a network's activations, and what each task keeps.

| policy | statistics at prediction | kept |
|---|---|---|
| none | the network has no batch norm | nothing |
| batch | mean and variance of the batch at hand | nothing |
| per_task | running mean and variance of each task | 2 floats per channel and task, or their code |
| shared | one running mean and variance for all tasks | 2 floats per channel, once |
| group | group norm: mean and variance of the single input | nothing |

Under every policy, instance norms normalise in training as in prediction: by their running
statistics, or by the statistics of each input if they have none.
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from impresslearn.checks import check_choice


def _group_norm(channels: int) -> nn.Module:
    # At least four channels per group: a group of one would erase maps with a single pixel.
    most = max(1, min(channels // 4, 32))  # at most 32: Wu and He, "Group Normalization" (2018)
    groups = max(count for count in range(1, most + 1) if channels % count == 0)
    return nn.GroupNorm(groups, channels, affine=False)


# The library's own networks have norms without scales and shifts, because masks cannot cover them.
_tracking_norm = partial(nn.BatchNorm2d, affine=False)

# All policies by name; add a new policy here. Each has a function that makes a norm layer for a
# number of channels, or None, and who has running statistics: each "task", "all" tasks, or None.
POLICIES: dict[str, tuple[Callable[[int], nn.Module] | None, str | None]] = {
    "none": (None, None),
    "batch": (partial(nn.BatchNorm2d, affine=False, track_running_stats=False), None),
    "per_task": (_tracking_norm, "task"),
    "shared": (_tracking_norm, "all"),
    "group": (_group_norm, None),
}


def buildable() -> dict[str, Callable[[int], nn.Module]]:
    """Policy -> the function that makes its norm layers, for policies that have one."""
    return {name: build for name, (build, _) in POLICIES.items() if build is not None}


def make_norm(channels: int, norm: str) -> nn.Module:
    """A norm layer for maps (n, channels, height, width). Raises InputError for "none"."""
    builders = buildable()
    return builders[check_choice("norm of a norm layer", norm, builders)](channels)


class LocalBatchNorm(_BatchNorm):
    """A batch norm within one process, for inputs with any number of dimensions."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass


def batch_norms(module: nn.Module) -> list[tuple[str, _BatchNorm]]:
    """The batch norms in the module, in order, as pairs (prefix of parameter names, norm)."""
    norms = []
    for name, child in module.named_modules():
        if isinstance(child, _BatchNorm):
            # If the module itself is a batch norm, its name is "".
            norms.append((f"{name}." if name else "", child))
    return norms


def untrained(module: nn.Module) -> bool:
    """Whether running statistics are as initialised (mean 0, variance 1): none were gathered."""
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
    """Makes every batch norm use the statistics of its batch in every mode. Works in place."""
    for _, norm in batch_norms(module):
        norm.running_mean = norm.running_var = norm.num_batches_tracked = None
        norm.track_running_stats = False


def convert_batch_norms(module: nn.Module, norm: str) -> str:
    """Converts the batch norms of a network to a policy, in place; returns the policy's name.

    The name is "none" for a network without batch norm, and "batch" if its batch norms have no
    running statistics. Raises InputError for a policy that is unknown or not for batch norm.
    """
    check_choice("norm of a backbone", norm, POLICIES)
    if not batch_norms(module):
        return "none"
    check_choice("norm of a network with batch norm", norm, ("batch", "per_task", "shared"))
    if norm == "batch":
        drop_statistics(module)
    return norm if statistic_names(module) else "batch"
