"""A network whose last layer reads the outputs of all its blocks, not of the last alone."""

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
# Layers whose channels are dimension 1; others have them last.
CHANNELS_SECOND = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.GroupNorm, _NormBase)

# Of the pass in this thread: each block called and its mean, the number of inputs, and their mask.
_pass: ContextVar[tuple[list[tuple[nn.Module, Tensor]], int, Any]] = ContextVar("_pass")


class BlockFeatures(nn.Module):
    """A copy of a network with a new last layer, `head`, that reads the mean outputs of all blocks.

    Middle blocks often tell new classes apart better than the last. Outputs are averaged over
    places or tokens and scaled to one length, beside what the network's own last layer reads; that
    layer goes. Adapt it as any module: `il.adapt(il.BlockFeatures(network, images[:2]))`.

    - `network`: any module that `adapt` takes.
    - `example`: two or more inputs of it, of which the first two differ.
    - `blocks`: names of the modules to read; by default the members of every `nn.Sequential` and
      `nn.ModuleList` that hold several layers with weights.

    Padding does not count if an input is named `attention_mask`. Raises InputError for a network
    without blocks, an unknown name, a block that is not called or gives no batch (n, ...), and for
    what `adapt` or learning would refuse.

    Source: Head2Toe (Evci et al. 2022), without its selection of features.
    """

    @clear_calls
    @torch.inference_mode(False)  # autograd rejects tensors made in inference mode
    @torch.no_grad()
    def __init__(self, network: nn.Module, example: Any, *, blocks: Any = None) -> None:
        super().__init__()
        backbone = adapt(network)
        inputs = checked_inputs(backbone, example).to(backbone.device, backbone.input_dtype)
        inputs = inputs if isinstance(inputs, Inputs) else Inputs(inputs)
        if len(inputs) < 2 or all(torch.equal(each[0], each[1]) for each in inputs.tensors):
            raise InputError("example must be two inputs or more, of which the first two differ")
        check_passes(backbone, inputs)
        self.network = backbone.module.eval()
        name, last = last_layer(self.network)
        modules = _blocks_of(self.network, name, blocks)
        # Without its last layer the network computes what that layer would read.
        parent, _, attribute = name.rpartition(".")
        end = nn.Identity()
        setattr(self.network.get_submodule(parent), attribute, end)
        for module in (*modules.values(), end):
            layers = [*(last if module is end else module).modules()]
            second = {isinstance(layer, CHANNELS_SECOND) for layer in layers if layer._parameters}
            sizes = {len(each) for each in module.parameters() if each.dim() == 1}
            # No closure: a copy of the network must not refer to the first.
            module.register_forward_hook(partial(_record, second, sizes))
        try:
            called, means = zip(*self._means(inputs), strict=True)
            # One input more: an output with the batch elsewhere cannot fit both.
            self._means(inputs[torch.arange(len(inputs) + 1) % len(inputs)])
        except (AttributeError, RuntimeError) as error:
            line = f"{backbone.name} does not run without its last layer, {name}"
            raise InputError(f"{line}; let forward call it and use nothing else of it") from error
        for block, module in modules.items():
            if module not in called:
                raise InputError(f"block {block!r} is not called; name others by blocks=[...]")
        weight = next(last.parameters())
        # Often the last layer reads the mean of the last block, and nothing else.
        room = torch.finfo(weight.dtype).eps ** 0.5 * float(means[-1].abs().max())
        same = means[-2].shape == means[-1].shape
        self._skips = same and float((means[-2] - means[-1]).abs().max()) < room
        width = sum(mean.shape[1] for mean in means) - self._skips * means[-1].shape[1]
        self.head = nn.Linear(width, backbone.num_classes, device="meta", dtype=weight.dtype)
        self.head.to_empty(device=weight.device)
        # Not zeros, with which no check would see what the network computes.
        fill_weights(self.head, "signed_constant", 0, 1.0, INIT_VERSION)
        nn.init.zeros_(self.head.bias)

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """The last layer's outputs (n, K); inputs as the network takes them."""
        means = [mean for _, mean in self._means(Inputs(*inputs, **named))]
        if self._skips:
            del means[-2]
        features = torch.cat(means, dim=1)
        # A root mean square of 1 suits the rates at which heads are trained.
        return self.head(features.to(self.head.weight) * sqrt(features.shape[1] / len(means)))

    def _means(self, inputs: Inputs) -> list[tuple[nn.Module, Tensor]]:
        """Every block that a pass calls, in order, and its scaled mean (n, f); the end is last."""
        means: list[tuple[nn.Module, Tensor]] = []
        mask = inputs.named.get("attention_mask")
        token = _pass.set((means, inputs.tensors[0].shape[0], mask))
        try:
            self.network(*inputs.arguments, **inputs.named)
        finally:
            _pass.reset(token)
        return means


def _blocks_of(network: nn.Module, last: str, blocks: Any) -> dict[str, nn.Module]:
    """The modules to read by name: the given ones, or members of containers."""
    modules, kind = dict(network.named_modules()), type(network).__name__
    if not isinstance(blocks, list | tuple | None):
        raise InputError(f"blocks must be a list of names, got {blocks!r}")
    for name in blocks or ():
        if name not in list(modules):
            raise InputError(f"{kind} has no module {name!r}{did_you_mean(name, modules)}")
        if not name or f"{last}.".startswith(f"{name}."):
            raise InputError(f"block {name!r} holds the last layer, which goes; name others")
    names = _members(modules, last) if blocks is None else blocks
    if blocks is None and len(names) == 1:  # as for nn.Sequential(body, head)
        names = _members(modules, last, inside=f"{names[0]}.") or names
    if not names:
        line = f"{kind} has no blocks of several layers in an nn.Sequential or nn.ModuleList"
        raise InputError(f"{line}; name the modules to read: BlockFeatures(..., blocks=[...])")
    return {name: modules[name] for name in names}


def _members(modules: dict[str, nn.Module], last: str, inside: str = "") -> list[str]:
    """The outermost members of containers that hold several layers, but not the last."""
    names: list[str] = []
    for name, module in modules.items():
        container = modules[name.rpartition(".")[0]]
        layers = [x for x in module.modules() if isinstance(x, MASKABLE) or units_in_columns(x)]
        found = name.startswith(tuple(f"{block}." for block in names))
        if found or not name.startswith(inside) or f"{last}.".startswith(f"{name}."):
            continue
        is_member = isinstance(container, CONTAINERS) and not isinstance(module, CONTAINERS)
        if is_member and len(layers) > 1:
            names.append(name)
    return names


def _record(second: set[bool], sizes: set[int], block: nn.Module, _: Any, output: Any) -> None:
    """Records (n, f) of length 1: an output averaged over all but the batch and the channels.

    - second: for the block's layers, whether their channels are dimension 1.
    - sizes: of its norms and biases.
    """
    if (running := _pass.get(None)) is None:
        return
    # Averaged now, since the network may change its output in place.
    means, count, mask = running
    values = output[0] if isinstance(output, tuple) and output else output
    dense = isinstance(values, Tensor) and not values.is_nested
    if not dense or values.dim() < 2 or values.shape[0] != count:
        got = tuple(values.shape) if dense else "no dense tensor"
        line = f"a block ({type(block).__name__}) must give a batch ({count}, ...), got {got}"
        raise InputError(f"{line}; name other modules by blocks=[...]")
    # Half precision would overflow in sums.
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    last = values.dim() - 1
    if last == 1:
        mean = values.clone()
    elif last == 2 and isinstance(mask, Tensor) and mask.shape == values.shape[:2]:
        weights = mask.unsqueeze(2).to(values.dtype)
        mean = (values * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1)
    else:
        # Channels are second in images and last in tokens. Exceptions show by their sizes: norms
        # and biases have as many numbers as there are channels.
        order = (1, last) if False not in second or (True in second and last > 2) else (last, 1)
        channels = next((dim for dim in order if values.shape[dim] in sizes), order[0])
        mean = values.mean([dim for dim in range(1, last + 1) if dim != channels])
    means.append((block, F.normalize(mean, dim=1)))
