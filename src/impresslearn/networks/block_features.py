"""A network whose last layer reads the outputs of all its blocks, not of the last alone."""

import copy
import math
from collections.abc import Collection
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from impresslearn.data import Inputs, as_network_inputs
from impresslearn.errors import InputError
from impresslearn.networks.layers import MASKABLE, last_layer, unwrapped

CONTAINERS = (nn.Sequential, nn.ModuleList)

# What the blocks of the pass that is running gave; one list per thread and pass.
_outputs: ContextVar[list[tuple[nn.Module, Any]]] = ContextVar("_outputs")


class BlockFeatures(nn.Module):
    """A network of blocks, with a last layer over the mean outputs of all of them.

    What separates new classes is often seen in the middle of a pretrained network and lost at its
    end. Here the last layer reads what every block gives, averaged over places or tokens, beside
    what the last layer of the network itself read. Each of these parts is scaled to one length,
    so nothing has to be measured or kept. Adapt it as any module: `il.adapt(BlockFeatures(network,
    images[:2]))`. The network is copied, and its own last layer goes.

    - network: any module that `adapt` takes.
    - example: two or more of its inputs, for one pass that finds the numbers of features.
    - blocks: the names of the modules to read; by default the members of its `nn.Sequential`s and
      `nn.ModuleList`s that hold several layers with weights.

    Tokens count by the input `attention_mask` if there is one. Raises InputError for a network
    without blocks, an unknown name, and blocks that do not give a batch (n, ...).

    Source: Head2Toe (Evci et al. 2022), without its selection of features.
    """

    def __init__(
        self, network: nn.Module, example: Any, *, blocks: Collection[str] | None = None
    ) -> None:
        super().__init__()
        network = copy.deepcopy(unwrapped(network)).eval()
        name, last = last_layer(network)
        modules = dict(network.named_modules())
        names = _blocks_of(network) if blocks is None else list(blocks)
        for block in names:
            if block not in modules:
                raise InputError(f"{type(network).__name__} has no module {block!r} to read")
        # In place of the last layer, its input is what the network computes.
        if not name:
            raise InputError("a network that is a single layer has no blocks")
        parent, _, attribute = name.rpartition(".")
        end = nn.Identity()
        setattr(network.get_submodule(parent), attribute, end)
        hooks = [modules[block].register_forward_hook(_record) for block in names]
        end.register_forward_hook(_record)
        self.network, self._length = network, 1.0
        inputs = as_network_inputs(example)
        inputs = inputs if isinstance(inputs, Inputs) else Inputs(inputs)
        with torch.no_grad():
            *parts, last_part = self._parts(*inputs.arguments, **inputs.named)
        # Often the last layer reads the mean of the last block, and nothing else.
        if parts and parts[-1].shape == last_part.shape and torch.allclose(parts[-1], last_part):
            hooks[-1].remove()
            parts.pop()
        outputs = int(last.nf if hasattr(last, "nf") else last.weight.shape[0])  # type: ignore
        weight = next(last.parameters())
        parts.append(last_part)
        width = sum(part.shape[1] for part in parts)
        # Features of root mean square 1 suit the rates at which heads are trained.
        self._length = math.sqrt(width / len(parts))
        self.head = nn.Linear(width, outputs, device="meta")
        self.head = self.head.to_empty(device=weight.device).to(weight.dtype)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """The last layer's outputs (n, K); inputs as the network takes them."""
        return self.head(torch.cat(self._parts(*inputs, **named), dim=1))

    def _parts(self, *inputs: Any, **named: Any) -> list[Tensor]:
        """The features (n, f) of each block, in the order in which the network calls them."""
        outputs: list[tuple[nn.Module, Any]] = []
        token = _outputs.set(outputs)
        try:
            self.network(*inputs, **named)
        finally:
            _outputs.reset(token)
        first = next(iter((*inputs, *named.values())))
        parts = [_mean(block, output, len(first), named) for block, output in outputs]
        return [self._length * F.normalize(part, dim=1) for part in parts]


def _record(block: nn.Module, _: Any, output: Any) -> None:
    """A hook, and no closure: a copy of the network must not refer to the first."""
    outputs = _outputs.get(None)
    if outputs is not None:
        outputs.append((block, output))


def _blocks_of(network: nn.Module) -> list[str]:
    """The names of the members of containers that hold several layers, outermost first."""
    names: list[str] = []
    for name, container in network.named_modules():
        if not isinstance(container, CONTAINERS):
            continue
        for key, member in container.named_children():
            layers = sum(isinstance(layer, MASKABLE) for layer in member.modules())
            inside = any(name.startswith(f"{block}.") for block in names)
            if layers > 1 and not isinstance(member, CONTAINERS) and not inside:
                names.append(f"{name}.{key}" if name else key)
    if not names:
        line = f"{type(network).__name__} has no blocks in an nn.Sequential or nn.ModuleList"
        raise InputError(f"{line}; name the modules to read: BlockFeatures(..., blocks=[...])")
    return names


def _mean(block: nn.Module, output: Any, count: int, named: Any) -> Tensor:
    """(n, f): an output (n, ...) averaged over all dimensions but the batch and the channels."""
    values = output[0] if isinstance(output, tuple) else output
    if not isinstance(values, Tensor) or values.dim() < 2 or len(values) != count:
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        line = f"a block ({type(block).__name__}) must give a batch ({count}, ...), got {got}"
        raise InputError(f"{line}; name other modules by blocks=[...]")
    if values.dim() == 2:
        return values
    mask = named.get("attention_mask")
    if values.dim() == 3 and isinstance(mask, Tensor) and mask.shape == values.shape[:2]:
        weights = mask.unsqueeze(2).to(values.dtype)
        return (values * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1)
    # Channels come second for images and last for tokens, and some networks keep images so too:
    # the block's norms and biases have as many numbers as there are channels.
    sizes = {len(each) for each in block.parameters() if each.dim() == 1}
    order = (1, values.dim() - 1) if values.dim() > 3 else (values.dim() - 1, 1)
    channels = next((dim for dim in order if values.shape[dim] in sizes), order[0])
    return values.mean([dim for dim in range(1, values.dim()) if dim != channels])
