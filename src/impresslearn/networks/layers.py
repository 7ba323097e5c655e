"""The layers that masks cover, and the heads and small parameters that differ between tasks.

A layer is a matrix of weights with one row per output unit. It may differ from the parameter: the
packed projections of `nn.MultiheadAttention` are one parameter but three layers, and GPT-2's
`Conv1D` has its units in columns. A head is the last layer. Biases and norms are small parameters.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from math import prod
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from impresslearn.checks import did_you_mean
from impresslearn.errors import InputError

# Module types whose `weight` has its output units in dimension 0 and can be masked.
MASKABLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
WRAPPERS = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "module",
    "AveragedModel": "module",
    "OptimizedModule": "_orig_mod",  # of torch.compile
    "ModelEma": "ema",
    "ModelEmaV2": "module",
    "ModelEmaV3": "module",
}
Part = Literal["", "q", "k", "v", "transposed"]
# The row blocks of a packed `in_proj_weight`, in order.
THIRDS: tuple[Part, ...] = ("q", "k", "v")
NO_LAYER = "{} has no maskable layer; expected an nn.Linear or nn.Conv in it"
HeadKind = Literal["shared", "own"]
TunedKind = Literal["norm", "bias"]
TUNED: tuple[TunedKind, ...] = get_args(TunedKind)  # the kinds of small parameters


@dataclass(frozen=True)
class MaskableLayer:
    """Weights that masks cover: a whole parameter, a third of one, or a transposed one.

    - `name`: the parameter's qualified name, such as "0.weight"; thirds end in ".q", ".k" or ".v".
    - `shape`: (units, fan-in dimensions ...).
    - `part`: "" for a whole parameter; "q", "k" or "v" for a third; or "transposed".
    """

    name: str
    shape: tuple[int, ...]
    part: Part = ""

    @property
    def units(self) -> int:
        """The number of output units of a linear layer, or output channels of a convolution."""
        return self.shape[0]

    @property
    def numel(self) -> int:
        """The number of weights in the layer."""
        return prod(self.shape)

    @property
    def fan_in(self) -> int:
        """The number of weights of one output unit."""
        return prod(self.shape[1:])

    @property
    def parameter(self) -> str:
        """The qualified name of the parameter that holds the weights."""
        return self.name.rpartition(".")[0] if self.part in THIRDS else self.name

    def of(self, parameter: Tensor) -> Tensor:
        """The layer's weights, of `shape`, as a view of the parameter."""
        if self.part == "transposed":
            return parameter.t()
        return parameter.chunk(3)[THIRDS.index(self.part)] if self.part else parameter


def candidates(module: nn.Module) -> dict[MaskableLayer, bool]:
    """All layers that masks can cover, in module order -> whether an embedding uses the weight.

    A shared weight is one layer, under its first name. Weights that are computed from other
    parameters (parametrised, normed or pruned) are left out. Raises InputError for lazy parameters.
    """
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if is_lazy(tensor):
            raise InputError(f"{name} is lazy and has no shape yet; run the module on a batch once")
    embedded: set[int] = set()
    for owner in module.modules():
        if isinstance(owner, EMBEDDINGS):
            embedded.update(map(id, owner.parameters(recurse=False)))
    layers: dict[MaskableLayer, bool] = {}
    seen: set[tuple[int, Part]] = set()
    for prefix, owner in module.named_modules():
        for short, part in _weights_of(owner):
            weight = owner._parameters.get(short)
            if weight is None or not weight.numel() or (id(weight), part) in seen:
                continue
            seen.add((id(weight), part))
            name = f"{prefix}.{short}" if prefix else short
            name = f"{name}.{part}" if part in THIRDS else name
            view = MaskableLayer(name, (), part).of(weight)
            layers[MaskableLayer(name, tuple(view.shape), part)] = id(weight) in embedded
    return layers


def maskable_layers(
    module: nn.Module, skip: Collection[str] = (), include: Collection[str] | None = None
) -> tuple[MaskableLayer, ...]:
    """The weights of linear, convolution and attention layers, in module order.

    Biases, norms, transposed convolutions, recurrent layers and computed weights are never masked.
    `skip`, `include`: as in `adapt`. Raises InputError if no layer is left or a name matches none.
    """
    layers = candidates(module)
    chosen = [layer for layer, is_embedding in layers.items() if not is_embedding]
    if not layers or (include is None and not chosen):
        raise InputError(NO_LAYER.format(type(module).__name__))
    if include is not None:
        chosen = _matching("include", include, layers)
    skipped = _matching("skip", skip, layers)
    masked = tuple(layer for layer in chosen if layer not in skipped)
    if not masked:
        line = f"include and skip leave none of the {len(layers)} maskable layers"
        raise InputError(f"{line}; keep at least one")
    return masked


def unwrapped(module: Any) -> nn.Module:
    """The module inside wrappers for training or compiling. Raises InputError without a module."""
    # Wrappers are known by name, as timm, which has some of them, may not be installed.
    while (inner := WRAPPERS.get(type(module).__name__)) is not None and hasattr(module, inner):
        module = getattr(module, inner)
    kind = type(module).__name__
    if not isinstance(module, nn.Module):
        raise InputError(f"adapt takes a built module, not its class, file or weights; got {kind}")
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise InputError(
                f"{name or 'all'} of {kind} is TorchScript, whose weights cannot be replaced in a "
                "pass; adapt the Python module that it was made from"
            )
    if type(module).forward is nn.Module.forward:
        line = f"{kind} has no forward; if it wraps a network"
        raise InputError(f"{line}, give that, as {kind}.module")
    return module


def checked_layers(layers: Any) -> tuple[MaskableLayer, ...]:
    """Returns a network's layers as a tuple. Raises InputError for anything else."""
    if not isinstance(layers, Sequence) or not all(isinstance(x, MaskableLayer) for x in layers):
        raise InputError(f"layers must be backbone.layers, got {type(layers).__name__}")
    return tuple(layers)


def last_layer(module: nn.Module) -> tuple[str, nn.Module]:
    """The name of the last linear layer or convolution, and itself. InputError if it has none."""
    for name, layer in reversed([*module.named_modules()]):
        if isinstance(layer, MASKABLE) or units_in_columns(layer):
            return name, layer
    raise InputError(NO_LAYER.format(type(module).__name__))


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a normalisation layer of torch or, by its class, of another library."""
    return "Norm" in type(module).__name__ and not isinstance(module, (*MASKABLE, *EMBEDDINGS))


def units_in_columns(module: nn.Module) -> bool:
    """Whether a module is GPT-2's `Conv1D`, a linear layer with a weight of shape (in, out)."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def vocabulary_of(module: nn.Module) -> int | None:
    """The number of token ids, if the first layer with weights is an embedding, else None."""
    for layer in module.modules():
        is_leaf = next(layer.children(), None) is None
        if is_leaf and next(layer.parameters(), None) is not None:
            return layer.num_embeddings if isinstance(layer, EMBEDDINGS) else None
    return None


@dataclass(frozen=True)
class HeadLayer:
    """The last layer of a network, which every task replaces by its own.

    - `name`: the name of its weight.
    - `shapes`: name -> shape of its weight and bias (if any), without the number of classes.
    """

    name: str
    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, module: nn.Module) -> "HeadLayer":
        """The head of a module. Raises InputError if its weight is computed or shared."""
        prefix, layer = last_layer(module)
        name = f"{prefix}.weight" if prefix else "weight"
        weight, bias = layer._parameters.get("weight"), layer._parameters.get("bias")
        parameters = module.named_parameters(remove_duplicate=False)
        users = [key for key, other in parameters if other is weight or other is bias]
        own = len(users) == (1 if bias is None else 2)
        if weight is None or units_in_columns(layer) or not own:
            why = "computed" if weight is None else "transposed" if own else "tied, or its bias is"
            line = f"each task replaces the last layer's weight, but {name} is {why}"
            raise InputError(f'{line}; pass head="shared"')
        shapes = {name: tuple(weight.shape[1:])}
        if bias is not None:
            shapes[name.removesuffix("weight") + "bias"] = ()
        return cls(name, shapes)

    @property
    def fan_in(self) -> int:
        """The number of features that the head reads."""
        return prod(self.shapes[self.name])


@dataclass(frozen=True)
class SmallParameter:
    """The scale or shift of a norm, or a bias.

    - `unit`: changes are learned as multiples of it, so that they have similar sizes in all layers.
    """

    name: str
    shape: tuple[int, ...]
    unit: float


SmallGroups = tuple[tuple[TunedKind, tuple[SmallParameter, ...]], ...]


def small_parameters(module: nn.Module, head: Collection[str]) -> SmallGroups:
    """The scales of norms, the shifts of norms, and other biases without the head's, by kind."""
    # Each kind is one group for all layers, because a group stores one rounding step.
    scales, shifts, biases = (list[SmallParameter]() for _ in range(3))
    seen: set[int] = set()
    for prefix, layer in module.named_modules():
        in_norm = is_norm(layer)
        for short, parameter in layer.named_parameters(recurse=False):
            name = f"{prefix}.{short}" if prefix else short
            is_shift = short in ("bias", "in_proj_bias")
            if id(parameter) in seen or name in head or not (in_norm or is_shift):
                continue
            seen.add(id(parameter))
            group = scales if not is_shift else shifts if in_norm else biases
            group.append(SmallParameter(name, tuple(parameter.shape), _unit(layer)))
    return ("norm", tuple(scales)), ("norm", tuple(shifts)), ("bias", tuple(biases))


def _unit(layer: nn.Module) -> float:
    """The typical size of a norm's scales, or of an output of any other layer.

    The size of an output is the root mean square of the weights times the root of their fan-in.
    """
    weight = layer._parameters.get("weight")
    for word in ("in_proj_weight", "q_proj_weight"):
        weight = layer._parameters.get(word) if weight is None else weight
    if weight is None or weight.is_meta or not weight.any():
        return 1.0
    size = float(weight.detach().cpu().abs().double().square().mean().sqrt())
    if is_norm(layer):
        return size
    fan_in = len(weight) if units_in_columns(layer) else prod(weight.shape[1:])
    return size * fan_in**0.5


def _weights_of(module: nn.Module) -> list[tuple[str, Part]]:
    """The weights that a module of this kind may have, as pairs (attribute, part)."""
    if isinstance(module, (*MASKABLE, *EMBEDDINGS)):
        return [("weight", "")]
    if units_in_columns(module):
        return [("weight", "transposed")]
    weights: list[tuple[str, Part]] = []
    if isinstance(module, nn.MultiheadAttention):
        # Attention has either one packed parameter or three; missing parameters are None.
        for third in THIRDS:
            weights += [("in_proj_weight", third), (f"{third}_proj_weight", "")]
    return weights


def _matching(
    word: str, patterns: Collection[str], layers: Collection[MaskableLayer]
) -> list[MaskableLayer]:
    """The layers that match any pattern. Raises InputError for a pattern that matches none."""
    chosen: set[MaskableLayer] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        # The name of a packed weight also matches its thirds.
        fitting = set()
        for layer in layers:
            whole = (layer.name, layer.parameter)
            if pattern in whole or any(fnmatchcase(name, pattern) for name in whole):
                fitting.add(layer)
        if not fitting:
            names = [layer.name for layer in layers]
            hint = did_you_mean(pattern, names) or f"; the first are {', '.join(names[:8])}"
            raise InputError(f"{word} names no maskable layer: {pattern!r}{hint}")
        chosen |= fitting
    return [layer for layer in layers if layer in chosen]
