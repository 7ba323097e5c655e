"""A network whose last layer reads the outputs of all its blocks, not of the last alone."""

from collections.abc import Collection
from contextvars import ContextVar
from functools import partial
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from impresslearn.checks import did_you_mean
from impresslearn.data import Inputs
from impresslearn.errors import InputError
from impresslearn.networks.inputs import check_passes, checked_inputs
from impresslearn.networks.layers import MASKABLE, last_layer, units_in_columns
from impresslearn.networks.registry import adapt, standard_normals

CONTAINERS = (nn.Sequential, nn.ModuleList)
# Layers whose channels are dimension 1; others have them last.
CHANNELS_SECOND = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.GroupNorm, _NormBase)

# Of the pass that runs in this thread: each block that was called and its mean output, the number
# of inputs and their attention mask.
Pass = tuple[list[tuple[nn.Module, Tensor]], int, Any]
_pass: ContextVar[Pass] = ContextVar("_pass")


class BlockFeatures(nn.Module):
    """A network with a new last layer, `head`, that reads the mean outputs of all its blocks.

    What separates new classes is often seen in the middle of a pretrained network and lost at its
    end. The outputs of each block are averaged over places or tokens and scaled to one length,
    beside the inputs of the network's own last layer, which goes. The network is copied. Adapt the
    result as any module: `il.adapt(il.BlockFeatures(network, images[:2]))`.

    - `network`: any module that `adapt` takes.
    - `example`: two or more different inputs of it, for a few passes that find the features.
    - `blocks`: the names of the modules to read; by default the members of every `nn.Sequential`
      and `nn.ModuleList` that hold several layers with weights.

    Padding counts for nothing if the network has an input named `attention_mask`. Raises InputError
    for a network without blocks, an unknown name, a block that is not called or gives no batch
    (n, ...), and for networks and inputs that do not suit `adapt`.

    Source: Head2Toe (Evci et al. 2022), without its selection of features.
    """

    @torch.inference_mode(False)  # autograd rejects tensors made in inference mode
    def __init__(
        self, network: nn.Module, example: Any, *, blocks: Collection[str] | None = None
    ) -> None:
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
        # In place of the last layer, what it reads is what the network computes.
        parent, _, attribute = name.rpartition(".")
        end = nn.Identity()
        setattr(self.network.get_submodule(parent), attribute, end)
        for module in (*modules.values(), end):
            _hook(module, like=last if module is end else module)
        try:
            with torch.no_grad():
                called, means = zip(*self._means(inputs), strict=True)
                # One input more: an output with the batch elsewhere cannot fit both.
                self._means(inputs[torch.arange(len(inputs) + 1) % len(inputs)])
        except (AttributeError, RuntimeError) as error:
            line = str(error).split("\n", 1)[0]
            raise InputError(f"{backbone.name} needs its last layer, {name}: {line}") from error
        for block, module in modules.items():
            if module not in called:
                raise InputError(f"block {block!r} is not called; name others by blocks=[...]")
        weight = next(last.parameters())
        # Often the last layer reads the mean of the last block, and nothing else.
        room = torch.finfo(weight.dtype).eps ** 0.5 * float(means[-1].abs().max())
        same = means[-2].shape == means[-1].shape
        self.skips = same and float((means[-2] - means[-1]).abs().max()) < room
        width = sum(mean.shape[1] for mean in means) - self.skips * means[-1].shape[1]
        self.head = nn.utils.skip_init(
            nn.Linear, width, backbone.num_classes, device=weight.device, dtype=weight.dtype
        )
        # Not zeros, with which no check would see what the network computes.
        normals = torch.from_numpy(standard_normals(self.head.weight.numel(), 0, 0))
        with torch.no_grad():
            self.head.weight.copy_(normals.view_as(self.head.weight) / sqrt(width))
            self.head.bias.zero_()

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """The last layer's outputs (n, K); inputs as the network takes them."""
        means = [mean for _, mean in self._means(Inputs(*inputs, **named))]
        if self.skips:
            del means[-2]
        features = torch.cat([F.normalize(mean, dim=1) for mean in means], dim=1)
        width = features.shape[1]
        if width != self.head.in_features:
            line = f"the blocks gave {width} features, not {self.head.in_features} as at first"
            raise InputError(f"{line}; every pass must call the same blocks")
        # Features of root mean square 1 suit the rates at which heads are trained.
        return self.head(features.to(self.head.weight) * sqrt(width / len(means)))

    def _means(self, inputs: Inputs) -> list[tuple[nn.Module, Tensor]]:
        """Every block that a pass calls, in order, and its mean output (n, f); the end is last."""
        means: list[tuple[nn.Module, Tensor]] = []
        mask = inputs.named.get("attention_mask")
        token = _pass.set((means, inputs.tensors[0].shape[0], mask))
        try:
            self.network(*inputs.arguments, **inputs.named)
        finally:
            _pass.reset(token)
        return means


def _blocks_of(
    network: nn.Module, last: str, blocks: Collection[str] | None
) -> dict[str, nn.Module]:
    """The modules to read by name, outermost first: the named ones, or members of containers."""
    modules = dict(network.named_modules())
    kind = type(network).__name__
    found: dict[str, nn.Module] = {}
    if blocks is not None and (isinstance(blocks, str) or not isinstance(blocks, Collection)):
        raise InputError(f"blocks must be a list of names, got {blocks!r}")
    for name in blocks or ():
        if not isinstance(name, str) or name not in modules:
            hint = did_you_mean(name, modules) or "; see its named_modules()"
            raise InputError(f"{kind} has no module {name!r}{hint}")
        if f"{last}.".startswith(f"{name}." if name else ""):
            raise InputError(f"block {name!r} holds the last layer, which goes; name others")
        found[name] = modules[name]
    for name, module in modules.items() if blocks is None else ():
        container = modules[name.rpartition(".")[0]]
        if not isinstance(container, CONTAINERS) or isinstance(module, CONTAINERS):
            continue
        layers = sum(
            isinstance(layer, MASKABLE) or units_in_columns(layer) for layer in module.modules()
        )
        inside = any(name.startswith(f"{block}.") for block in found)
        if layers > 1 and not inside and not f"{last}.".startswith(f"{name}."):
            found[name] = module
    if not found:
        line = f"{kind} has no blocks of several layers in an nn.Sequential or nn.ModuleList"
        raise InputError(f"{line}; name the modules to read: BlockFeatures(..., blocks=[...])")
    return found


def _hook(module: nn.Module, like: nn.Module) -> None:
    """Makes a module record its means; like: itself, or the layer that stood in its place."""
    second, others = False, False
    for layer in like.modules():
        if next(layer.parameters(recurse=False), None) is not None:
            second |= isinstance(layer, CHANNELS_SECOND)
            others |= not isinstance(layer, CHANNELS_SECOND)
    # No closure: a copy of the network must not refer to the first.
    module.register_forward_hook(partial(_record, second, others))


def _record(second: bool, others: bool, block: nn.Module, _: Any, output: Any) -> None:
    """Records (n, f): an output (n, ...) averaged over all but the batch and the channels."""
    running = _pass.get(None)
    if running is None:
        return
    # Averaged now, since the network may change its output in place.
    means, count, mask = running
    values = output[0] if isinstance(output, tuple) and output else output
    nested = isinstance(values, Tensor) and values.is_nested
    tensor = isinstance(values, Tensor) and not nested
    if not tensor or values.dim() < 2 or values.shape[0] != count:
        got = tuple(values.shape) if tensor else "nested" if nested else type(values).__name__
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
        # Images mostly have channels second and tokens last. The exceptions show by their sizes:
        # norms and biases have as many numbers as there are channels.
        order = (1, last) if not others or (second and last > 2) else (last, 1)
        sizes = {len(each) for each in block.parameters() if each.dim() == 1}
        channels = next((dim for dim in order if values.shape[dim] in sizes), order[0])
        mean = values.mean([dim for dim in range(1, last + 1) if dim != channels])
    means.append((block, mean))
