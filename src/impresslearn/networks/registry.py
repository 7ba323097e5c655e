"""The two ways to a `Backbone`: a random network by name, or any module of the user's.

`create_backbone` builds a registered network and fills it from a seed; `register_backbone` adds
one's own to the names. `adapt` copies and freezes a module that exists already.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from impresslearn.errors import InputError
from impresslearn.networks.backbone import Backbone
from impresslearn.networks.initialisation import INIT_VERSION, fill_weights
from impresslearn.networks.layers import maskable_layers
from impresslearn.networks.lenet import lenet_300_100
from impresslearn.networks.norms import NORMS, check_norm, convert_batch_norms, untrained
from impresslearn.networks.resnet import resnet18, resnet50
from impresslearn.validation import check_integer

Builder = TypeVar("Builder", bound=Callable[..., nn.Module])


@dataclass(frozen=True)
class _Entry:
    build: Callable[..., nn.Module]
    norms: tuple[str, ...]


_entries: dict[str, _Entry] = {}

_RESERVED = frozenset({"name", "seed", "init", "gain", "init_version"})


def register_backbone(
    name: str, *, norms: Sequence[str] = ("none",)
) -> Callable[[Builder], Builder]:
    """A decorator that makes a builder available to `create_backbone` under `name`.

    The builder is called as builder(num_classes=…, **settings), with `norm` as well if it has such
    a parameter, and returns a module; its settings are JSON values. norms: the policies that it
    can build, the default first. An attribute `input_shape` of the module, such as
    (3, None, None), lets inputs be checked. Maskable weights are filled by `init`; other random
    numbers of the builder follow the seed too, on one version of torch and family of processor.
    Raises InputError for a name that is taken, unknown policies, and settings named as an argument
    of `create_backbone`.
    """
    if name in _entries:
        raise InputError(f"a backbone named {name!r} is registered already; choose another name")
    if not norms:
        raise InputError(f"norms of {name} must name at least one policy, got none")
    for norm in norms:
        check_norm(norm, NORMS, name)

    def register(builder: Builder) -> Builder:
        reserved = _RESERVED & set(inspect.signature(builder).parameters)
        if reserved:
            raise InputError(f"the builder of {name} cannot have a setting {min(reserved)!r}")
        _entries[name] = _Entry(builder, tuple(norms))
        return builder

    return register


def list_backbones() -> list[str]:
    """The names that `create_backbone` knows, sorted."""
    return sorted(_entries)


def create_backbone(
    name: str,
    num_classes: int,
    seed: int = 0,
    init: str = "kaiming_normal",
    norm: str | None = None,
    gain: float = 1.0,
    init_version: int = INIT_VERSION,
    **settings: Any,
) -> Backbone:
    """A random, frozen network; the same arguments give the same weights, on every machine.

    init: "kaiming_normal" or "signed_constant". gain: multiplies all weights; about
    1 / sqrt(1 - sparsity) suits masks on a network without norms, 2 at sparsity 0.9 (best found).
    norm: see `backbones.norms`; by default "none" for
    lenet_300_100 and "batch" for the residual networks. init_version: 1 draws torch's own normal
    numbers, as networks whose spec names no version did; they depend on the version of torch and
    the family of processor. settings: lenet_300_100 takes in_features and widths, resnet18 and
    resnet50 take width and in_channels. torch's global random state is left as it was.
    Raises InputError for an unknown name, init, norm or setting and for values out of range.
    """
    entry = _entry(name)
    norm = entry.norms[0] if norm is None else norm
    check_norm(norm, entry.norms, name)
    num_classes = check_integer("num_classes", num_classes, 1)
    seed = check_integer("seed", seed, 0)
    arguments: dict[str, Any] = {"num_classes": num_classes}
    if "norm" in inspect.signature(entry.build).parameters:
        arguments["norm"] = norm
    settings = _complete_settings(name, entry.build, arguments, settings)
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would seed the accelerators' generators for good.
        torch.default_generator.manual_seed(seed)
        module = entry.build(**arguments, **settings)
    fill_weights(module, init, seed, gain, init_version)
    spec = {
        "name": name,
        "num_classes": num_classes,
        "seed": seed,
        "init": init,
        "norm": norm,
        "gain": float(gain),
        "init_version": int(init_version),
    }
    return Backbone(
        module,
        num_classes=num_classes,
        norm=norm,
        input_shape=getattr(module, "input_shape", None),
        spec=spec | settings,
    )


def count_parameters(name: str, num_classes: int, **settings: Any) -> int:
    """Numbers in the network that `create_backbone` makes with these arguments; none is allocated.

    Raises InputError as `create_backbone`.
    """
    entry = _entry(name)
    arguments: dict[str, Any] = {"num_classes": check_integer("num_classes", num_classes, 1)}
    settings = {key: value for key, value in settings.items() if key not in _RESERVED}
    norm = settings.pop("norm", entry.norms[0])
    if "norm" in inspect.signature(entry.build).parameters:
        arguments["norm"] = norm
    settings = _complete_settings(name, entry.build, arguments, settings)
    try:
        with torch.device("meta"):
            module = entry.build(**arguments, **settings)
    except (RuntimeError, TypeError, OverflowError) as error:
        line = str(error).split("\n", 1)[0]
        raise InputError(f"{name} cannot be built with {settings}: {line}") from None
    return sum(parameter.numel() for parameter in module.parameters())


def adapt(
    module: nn.Module,
    *,
    num_classes: int | None = None,
    norm: str = "shared",
    input_shape: Sequence[int | None] | None = None,
    skip: Collection[str] = (),
) -> Backbone:
    """A frozen copy of any module that maps inputs (n, ...) to logits (n, classes).

    The module itself is left alone; the copy keeps its weights, device and dtype. num_classes: by
    default the units of the last maskable layer. norm: what tasks do with batch norm, "shared" (the
    module's running statistics, frozen; where these are as new, mean 0 and variance 1, those of the
    first task learned), "per_task" (each task's own, starting there) or "batch"; a module without
    batch norm gets "none". Anything else that a module counts in buffers stays as it is.
    input_shape: the shape of one input, None for a free size. skip: names of weights to leave
    unmasked. Not maskable and therefore left frozen: biases, norms, embeddings and the
    `in_proj_weight` of `nn.MultiheadAttention`.
    Raises InputError for a module that cannot be copied or masked, and for bad settings.
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"adapt takes an nn.Module, got {type(module).__name__}")
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if is_lazy(tensor):
            raise InputError(f"{name} is lazy and has no shape yet; run the module on a batch once")
    layers = maskable_layers(module)
    try:
        frozen = copy.deepcopy(module)
    except (RuntimeError, TypeError) as error:
        line = str(error).split("\n", 1)[0]
        raise InputError(f"{type(module).__name__} cannot be copied: {line}") from error
    norm = convert_batch_norms(frozen, norm)
    return Backbone(
        frozen,
        num_classes=layers[-1].units if num_classes is None else num_classes,
        norm=norm,
        input_shape=input_shape,
        skip=skip,
        pretrained=not untrained(frozen),
    )


def _entry(name: str) -> _Entry:
    if name in _entries:
        return _entries[name]
    close = difflib.get_close_matches(str(name), _entries, n=1)
    guess = f"did you mean {close[0]!r}? " if close else ""
    raise InputError(f"no backbone {name!r}; {guess}choose from {', '.join(list_backbones())}")


def _complete_settings(
    name: str, build: Callable[..., nn.Module], arguments: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """The builder's settings with its defaults filled in, as plain JSON values."""
    signature = inspect.signature(build)
    try:
        bound = signature.bind(**arguments, **settings)
    except TypeError as error:
        known = [key for key in signature.parameters if key not in arguments]
        raise InputError(
            f"{name}: {error}; its settings are {', '.join(known) or 'none'}"
        ) from None
    bound.apply_defaults()
    complete = {**bound.kwargs, **dict(zip(signature.parameters, bound.args, strict=False))}
    for key in arguments:
        complete.pop(key)
    try:
        return json.loads(json.dumps(complete))
    except TypeError as error:
        raise InputError(f"the settings of {name} must be JSON values: {error}") from None


register_backbone("lenet_300_100")(lenet_300_100)
for _name, _builder in (("resnet18", resnet18), ("resnet50", resnet50)):
    register_backbone(_name, norms=("batch", "per_task", "shared", "group"))(_builder)
