"""`BlockFeatures`: a network whose last layer reads the outputs of all blocks, not of one."""

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from impresslearn.checks import clear_calls, did_you_mean
from impresslearn.data import Inputs
from impresslearn.errors import InputError
from impresslearn.networks.inputs import check_passes, checked_inputs
from impresslearn.networks.layers import MASKABLE, last_layer, units_in_columns
from impresslearn.networks.registry import INIT_VERSION, adapt, fill_weights

CONTAINERS = (nn.Sequential, nn.ModuleList)
# Layers whose channels are dimension 1. Other layers have channels last.
CHANNELS_SECOND = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.GroupNorm, _NormBase)

# The pass under way: (block, mean output) called so far, number of inputs, attention mask.
_pass: ContextVar[tuple[list[tuple[nn.Module, Tensor]], int, Any]] = ContextVar("_pass")


class BlockFeatures(nn.Module):
    """A copy of a network with a new last layer, `head`, that reads the mean outputs of all blocks.

    Middle blocks often tell new classes apart better than the last block. The head reads the output
    of each block, and the inputs of the old last layer. Each is averaged over pixels or tokens and
    scaled to length 1. Adapt it like any module: `il.adapt(il.BlockFeatures(network, images[:2]))`.

    - `network`: any module that `adapt` takes.
    - `example`: two or more inputs of the network; the first two must differ.
    - `blocks`: names of the modules to read. The default is every member of an `nn.Sequential` or
      `nn.ModuleList`, if the member holds several layers with weights.

    Means leave out padding if an input is named `attention_mask`. Raises InputError for a network
    without blocks or that `adapt` refuses, an unknown name, and a block without a batch (n, ...).

    Source: Head2Toe (Evci et al. 2022), without selecting features as it does.
    """

    @clear_calls
    @torch.inference_mode(False)  # autograd rejects tensors made in inference mode
    @torch.no_grad()
    def __init__(self, network: nn.Module, example: Any, *, blocks: Any = None) -> None:
        super().__init__()
        backbone = adapt(network)
        inputs = checked_inputs(backbone, example).to(backbone.device, backbone.input_dtype)
        inputs = inputs if isinstance(inputs, Inputs) else Inputs(inputs)
        # With equal inputs, rows that depend on one another would stay unnoticed.
        if len(inputs) < 2 or all(torch.equal(each[0], each[1]) for each in inputs.tensors):
            raise InputError("example must be two inputs or more, of which the first two differ")
        check_passes(backbone, inputs)
        self.network = backbone.module.eval()
        last_name, last = last_layer(self.network)
        modules = _blocks_of(self.network, last_name, blocks)
        # With an identity as its last layer, the network returns the inputs of the old last layer.
        parent, _, attribute = last_name.rpartition(".")
        end = nn.Identity()
        setattr(self.network.get_submodule(parent), attribute, end)
        for module in (*modules.values(), end):
            layers = [*(last if module is end else module).modules()]
            second = {isinstance(layer, CHANNELS_SECOND) for layer in layers if layer._parameters}
            sizes = {len(each) for each in module.parameters() if each.dim() == 1}
            # With a closure, a deep copy of the network would share objects with this network.
            module.register_forward_hook(partial(_record, second, sizes))
        try:
            called, means = zip(*self._means(inputs), strict=True)
            # A pass with one more input finds outputs that do not have the batch first.
            self._means(inputs[torch.arange(len(inputs) + 1) % len(inputs)])
        except (AttributeError, RuntimeError) as error:
            line = f"{backbone.name} does not run without its last layer, {last_name}"
            raise InputError(f"{line}; let forward call it and use nothing else of it") from error
        for block, module in modules.items():
            if module not in called:
                raise InputError(f"block {block!r} is not called; name others by blocks=[...]")
        weight = next(last.parameters())
        # The old last layer often reads the mean of the last block. The head reads it only once.
        tolerance = torch.finfo(weight.dtype).eps ** 0.5 * float(means[-1].abs().max())
        same = means[-2].shape == means[-1].shape
        self._skips_last_block = same and float((means[-2] - means[-1]).abs().max()) < tolerance
        read = means[:-2] + means[-1:] if self._skips_last_block else means
        width = sum(mean.shape[1] for mean in read)
        self.head = nn.Linear(width, backbone.num_classes, device="meta", dtype=weight.dtype)
        self.head.to_empty(device=weight.device)
        # With a head of zeros all logits would be equal, and the checks of `adapt` find no fault.
        fill_weights(self.head, "signed_constant", seed=0, gain=1.0, version=INIT_VERSION)
        nn.init.zeros_(self.head.bias)

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """The outputs (n, K) of the head; takes the network's own inputs."""
        means = [mean for _, mean in self._means(Inputs(*inputs, **named))]
        if self._skips_last_block:
            del means[-2]
        features = torch.cat(means, dim=1)
        # The learning rates of heads suit features with a root mean square of 1.
        return self.head(features.to(self.head.weight) * sqrt(features.shape[1] / len(means)))

    def _means(self, inputs: Inputs) -> list[tuple[nn.Module, Tensor]]:
        """The blocks in the order of a pass with their scaled means (n, f); `end` comes last."""
        means: list[tuple[nn.Module, Tensor]] = []
        mask = inputs.named.get("attention_mask")
        token = _pass.set((means, inputs.tensors[0].shape[0], mask))
        try:
            self.network(*inputs.arguments, **inputs.named)
        finally:
            _pass.reset(token)
        return means


def _blocks_of(network: nn.Module, last: str, blocks: Any) -> dict[str, nn.Module]:
    """The modules to read, by name: the modules given, or else members of containers."""
    modules, kind = dict(network.named_modules()), type(network).__name__
    if not isinstance(blocks, list | tuple | None):
        raise InputError(f"blocks must be a list of names, got {blocks!r}")
    for name in blocks or ():
        if name not in list(modules):  # names may be unhashable, so search a list
            raise InputError(f"{kind} has no module {name!r}{did_you_mean(name, modules)}")
        if not name or f"{last}.".startswith(f"{name}."):
            raise InputError(f"block {name!r} holds the last layer, which goes; name others")
    names = blocks
    for is_block in (_is_block, _is_small_block):
        if blocks is None and not names:
            names = _members(modules, last, is_block)
            if len(names) == 1:  # nn.Sequential(body, head): look inside the body
                names = _members(modules, last, is_block, inside=f"{names[0]}.") or names
    if not names:
        line = f"{kind} has no blocks of several layers in an nn.Sequential or nn.ModuleList"
        raise InputError(f"{line}; name the modules to read: BlockFeatures(..., blocks=[...])")
    return {name: modules[name] for name in names}


def _is_block(module: nn.Module) -> bool:
    layers = [x for x in module.modules() if isinstance(x, MASKABLE) or units_in_columns(x)]
    return len(layers) > 1 and not isinstance(module, CONTAINERS)


def _is_small_block(module: nn.Module) -> bool:
    """Whether it has several layers with weights, as nn.Sequential(conv, norm) has."""
    return sum(bool(layer._parameters) for layer in module.modules()) > 1


def _members(
    modules: dict[str, nn.Module],
    last: str,
    is_block: Callable[[nn.Module], bool],
    inside: str = "",
) -> list[str]:
    """The outermost blocks in `inside` that are members of a container, but not the last."""
    names: list[str] = []
    for name, module in modules.items():
        container = modules[name.rpartition(".")[0]]
        is_within_one = name.startswith(tuple(f"{block}." for block in names))
        holds_last = f"{last}.".startswith(f"{name}.")
        if is_within_one or holds_last or not name.startswith(inside):
            continue
        is_member = isinstance(container, CONTAINERS) and container is not module
        if is_member and is_block(module):
            names.append(name)
    return names


def _record(second: set[bool], sizes: set[int], block: nn.Module, _: Any, output: Any) -> None:
    """A hook that adds the block and its mean output (n, f), of length 1, to the current pass.

    - second: whether channels are dimension 1 (True) or last (False), of layers with weights.
    - sizes: the lengths of the block's norms and biases.
    """
    if (running := _pass.get(None)) is None:  # not in a pass of `BlockFeatures`
        return
    # Take the mean now, because the network may change this output in place later.
    means, count, mask = running
    values = output[0] if isinstance(output, tuple) and output else output
    dense = isinstance(values, Tensor) and not values.is_nested
    if not dense or values.dim() < 2 or values.shape[0] != count:
        got = tuple(values.shape) if dense else "no dense tensor"
        line = f"a block ({type(block).__name__}) must give a batch ({count}, ...), got {got}"
        raise InputError(f"{line}; name other modules by blocks=[...]")
    # Half precision would overflow in sums.
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    last_dim = values.dim() - 1
    if last_dim == 1:
        mean = values.clone()
    elif last_dim == 2 and isinstance(mask, Tensor) and mask.shape == values.shape[:2]:
        weights = mask.unsqueeze(2).to(values.dtype)
        mean = (values * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1)
    else:
        # Images have channels in dimension 1, tokens in the last dimension. If only the other of
        # these two dimensions has the size of a norm or bias, that other one has the channels.
        is_image = True in second and last_dim > 2
        order = (1, last_dim) if is_image or False not in second else (last_dim, 1)
        channels = next((dim for dim in order if values.shape[dim] in sizes), order[0])
        mean = values.mean([dim for dim in range(1, last_dim + 1) if dim != channels])
    means.append((block, F.normalize(mean, dim=1)))
