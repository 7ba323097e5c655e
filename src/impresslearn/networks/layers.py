"""The ordered maskable layers of a module: what masks and coefficients are laid out over.

A task computes `{name: W ⊙ mask}` for the layers listed here and calls the module with those
tensors in place of its parameters, so any architecture works and nothing has to be undone. A layer
is a matrix of weights with its units in rows, which is not always a parameter: the packed
projections of `nn.MultiheadAttention` are three layers, and GPT-2's `Conv1D` keeps its units in
columns.
`joined` makes parameters of layers again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from impresslearn.checks import nearest
from impresslearn.errors import InputError

MASKABLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Module types whose `weight` has its output units in dimension 0 and can be masked."""
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)

Part = Literal["", "q", "k", "v", "transposed"]
Kind = Literal["", "embedding", "tied", "computed"]
THIRDS: tuple[Part, ...] = ("q", "k", "v")
"""The row blocks of a packed `in_proj_weight`, in order."""


@dataclass(frozen=True)
class MaskableLayer:
    """Weights that masks cover: a parameter, a third of one, or one with rows and columns swapped.

    - `name`: the parameter's qualified name, such as "0.weight"; ".q", ".k" or ".v" follows for a
      third of it.
    - `shape`: (units, fan-in dimensions ...).
    - `part`: "" for a whole parameter, a third, or "transposed".
    """

    name: str
    shape: tuple[int, ...]
    part: Part = ""

    @property
    def units(self) -> int:
        """Output units of a linear layer, output channels of a convolution."""
        return self.shape[0]

    @property
    def numel(self) -> int:
        """Weights in the layer."""
        return prod(self.shape)

    @property
    def fan_in(self) -> int:
        """Weights that feed one output unit."""
        return prod(self.shape[1:])

    @property
    def parameter(self) -> str:
        """The qualified name of the parameter that holds the weights."""
        return self.name.rpartition(".")[0] if self.part in THIRDS else self.name

    def of(self, parameter: Tensor) -> Tensor:
        """The layer's weights, of `shape`, as a view of the parameter."""
        return _view(parameter, self.part)


def checked_layers(layers: Any) -> tuple[MaskableLayer, ...]:
    """The layers of a network. Raises InputError for anything else."""
    if not isinstance(layers, Sequence) or not all(isinstance(x, MaskableLayer) for x in layers):
        kind = type(layers).__name__
        raise InputError(f"layers must be those of a network, backbone.layers; got {kind}")
    return tuple(layers)


@dataclass(frozen=True)
class Candidate:
    """A layer that could be masked, and what stands against it by default.

    - `names`: all names of its parameter, if several modules share it.
    - `kind`: "" is masked unless it is skipped; "embedding" or "tied" (to one) has to be included;
      "computed" weights (parametrised, pruned) are computed from parameters, and cannot be masked.
    """

    layer: MaskableLayer
    names: tuple[str, ...]
    kind: Kind = ""

    def fits(self, pattern: str) -> bool:
        """Whether a pattern is the name of the layer or of its parameter, or matches one of them.

        An embedding and a layer tied to it differ by their names alone.
        """
        names = {self.layer.name, self.layer.parameter, *(() if self.kind else self.names)}
        return pattern in names or any(fnmatchcase(name, pattern) for name in names)


def maskable_layers(
    module: nn.Module, skip: Collection[str] = (), include: Collection[str] | None = None
) -> tuple[MaskableLayer, ...]:
    """The weights of linear, convolution and attention layers, in module order.

    An embedding, or a layer that shares its weight, is masked only if it is included. A weight that
    several layers share is listed once, under its first layer's name, and masked wherever it is
    used. Biases, norms, transposed convolutions and recurrent layers are never masked.

    - `skip`: names to leave out, or patterns such as "*.attn.*".
    - `include`: names or patterns to mask instead of all.

    Raises InputError if nothing is left, for a name that fits no weight, and for weights that are
    not plain parameters (lazy; parametrised or pruned and not skipped).
    """
    all_candidates = _some_candidates(module)
    left = chosen_candidates(all_candidates, skip, include)
    if not left and include is None and not skip:
        raise InputError("only embeddings could be masked; choose them with include")
    if not left:
        words = "skip leaves" if include is None else "include and skip leave"
        count = len(all_candidates)
        raise InputError(f"{words} none of the {count} maskable layers; keep at least one")
    for candidate in left:
        layer = candidate.layer
        if candidate.kind == "computed":
            raise InputError(
                f"{layer.name} is computed from other parameters (parametrised, normed or "
                "pruned); remove that before masking the module, or skip it"
            )
        if not layer.numel:
            shape = "x".join(map(str, layer.shape))
            raise InputError(f"{layer.name} has no weights, it is {shape}; skip it")
    return tuple(candidate.layer for candidate in left)


def _some_candidates(module: nn.Module) -> list[Candidate]:
    layers = candidates(module)
    if not layers:
        kind = type(module).__name__
        raise InputError(f"{kind} has no maskable layer; expected an nn.Linear or nn.Conv in it")
    return layers


def chosen_candidates(
    layers: Sequence[Candidate], skip: Collection[str], include: Collection[str] | None
) -> list[Candidate]:
    """The candidates that `maskable_layers` lists, or refuses because weights are computed."""
    if include is None:
        chosen = [candidate for candidate in layers if candidate.kind in ("", "computed")]
    else:
        chosen = _named("include", include, layers)
    skipped = _named("skip", skip, layers)
    left: dict[tuple[str, Part], Candidate] = {}
    for candidate in chosen:
        if candidate not in skipped:
            left.setdefault((candidate.names[0], candidate.layer.part), candidate)
    return list(left.values())


def plain_layers(module: nn.Module) -> tuple[MaskableLayer, ...]:
    """The weights of linear layers and convolutions alone, those tied to an embedding included.

    Raises InputError where there is none, or one that is computed.
    """
    names = []
    for candidate in candidates(module):
        name = candidate.layer.name
        is_weight = name.rpartition(".")[2] == "weight" and not candidate.layer.part
        if is_weight and candidate.kind != "embedding":
            names.append(name)
    return maskable_layers(module, include=names or None)


def candidates(module: nn.Module) -> list[Candidate]:
    """All weights that masks can cover, in module order; raises InputError for lazy parameters.

    A shared weight is one candidate, but an embedding and the layers tied to it are two.
    """
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if is_lazy(tensor):
            raise InputError(f"{name} is lazy and has no shape yet; run the module on a batch once")
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    embedded: set[int] = set()
    for part_of_module in module.modules():
        if isinstance(part_of_module, EMBEDDINGS):
            embedded.update(map(id, part_of_module.parameters(recurse=False)))
    layers: dict[tuple[str, Part, Kind], Candidate] = {}
    for prefix, owner in module.named_modules():
        for short, part in _weights_of(owner):
            name = f"{prefix}.{short}" if prefix else short
            weight = dict(owner.named_parameters(recurse=False)).get(short)
            kind: Kind = ""
            # Parametrisation, weight norm and pruning recompute weights and keep no such parameter.
            if weight is None:
                weight, kind = _computed(owner, short), "computed"
            elif id(weight) in embedded:
                kind = "embedding" if isinstance(owner, EMBEDDINGS) else "tied"
            full_name = f"{name}.{part}" if part in THIRDS else name
            layer = MaskableLayer(full_name, tuple(_view(weight, part).shape), part)
            shared = tuple(names.get(id(weight), [name]))
            layers.setdefault((shared[0], part, kind), Candidate(layer, shared, kind))
    return list(layers.values())


def last_layer(module: nn.Module) -> MaskableLayer:
    """The last layer that could be masked, embeddings apart: as a rule it gives the logits.

    Raises InputError if there is none.
    """
    layers = _some_candidates(module)
    without_embeddings = [candidate for candidate in layers if candidate.kind != "embedding"]
    return (without_embeddings or layers)[-1].layer


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a normalisation layer, of torch or another library: by its class."""
    return "Norm" in type(module).__name__ and not isinstance(module, (*MASKABLE, *EMBEDDINGS))


def units_in_columns(module: nn.Module) -> bool:
    """Whether it is GPT-2's `Conv1D`, a linear layer whose weight is (in, out)."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def vocabulary_of(module: nn.Module) -> int | None:
    """The rows of an embedding that is the first layer with weights, which takes ids; or None."""
    for layer in module.modules():
        is_leaf = next(layer.children(), None) is None
        if is_leaf and next(layer.parameters(), None) is not None:
            return layer.num_embeddings if isinstance(layer, EMBEDDINGS) else None
    return None


def joined(
    layers: Sequence[MaskableLayer],
    weights: Mapping[str, Tensor],
    parameter_of: Callable[[str], Tensor],
) -> dict[str, Tensor]:
    """Weights by layer name as tensors by parameter name, each laid out as the parameter is.

    - `layers`: the maskable layers; other names stay as they are.
    - `weights`: layer name -> weights.
    - `parameter_of`: gives the frozen parameter, for thirds of it that have no weights here.
    """
    parts = {layer.name: layer for layer in layers if layer.part}
    parameters: dict[str, Tensor] = {}
    thirds: dict[str, list[Tensor]] = {}
    for name, weight in weights.items():
        layer = parts.get(name)
        if layer is None:
            parameters[name] = weight
        elif layer.part == "transposed":
            # Contiguous, as an export will have it, so that both compute the same bits.
            parameters[name] = weight.t().contiguous()
        else:
            whole = layer.parameter
            if whole not in thirds:
                thirds[whole] = list(parameter_of(whole).chunk(3))
            thirds[whole][THIRDS.index(layer.part)] = weight
    return parameters | {name: torch.cat(rows) for name, rows in thirds.items()}


def _weights_of(module: nn.Module) -> Iterator[tuple[str, Part]]:
    """The weights of one module that can be masked: attribute, and what of it."""
    if isinstance(module, (*MASKABLE, *EMBEDDINGS)):
        yield "weight", ""
    elif isinstance(module, nn.MultiheadAttention):
        whole = "in_proj_weight"
        packed = is_parametrized(module, whole) or getattr(module, whole) is not None
        for third in THIRDS:
            yield ("in_proj_weight", third) if packed else (f"{third}_proj_weight", "")
    elif units_in_columns(module):
        yield "weight", "transposed"


def _computed(owner: nn.Module, short: str) -> Tensor:
    """A weight that is computed from parameters; reading it changes nothing.

    A parametrisation runs whenever it is read, and in training may change its buffers then, as
    spectral norm does: a copy is read.
    """
    if is_parametrized(owner, short):
        owner = copy.deepcopy(owner).eval()
    with torch.no_grad():
        return getattr(owner, short)


def _view(parameter: Tensor, part: Part) -> Tensor:
    if part == "transposed":
        return parameter.t()
    return parameter.chunk(3)[THIRDS.index(part)] if part else parameter


def _named(word: str, patterns: Collection[str], layers: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that fit any pattern. Raises InputError for a pattern that fits none."""
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    fitting: set[int] = set()
    for pattern in patterns:
        places = [place for place, layer in enumerate(layers) if layer.fits(pattern)]
        if not places:
            names = [candidate.layer.name for candidate in layers]
            close = nearest(pattern, names)
            known = ", ".join(close or names[:8]) + (", …" if len(names) > 8 else "")
            raise InputError(
                f"{word} names {pattern!r}, which is not a maskable layer; "
                f"the {'closest' if close else 'layers'} are {known}"
            )
        fitting.update(places)
    return [candidate for place, candidate in enumerate(layers) if place in fitting]
