"""The two ways to a `Backbone`: a random network by name, or any module of the user's."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from impresslearn.checks import check_integer, check_known, plain_json
from impresslearn.errors import InputError
from impresslearn.networks.architectures import (
    lenet_300_100,
    linear,
    resnet18,
    resnet20,
    resnet50,
)
from impresslearn.networks.backbone import Backbone
from impresslearn.networks.heads import HeadKind
from impresslearn.networks.initialisation import INIT_VERSION, Init, check_gain, fill_weights
from impresslearn.networks.layers import last_layer, maskable_layers
from impresslearn.networks.norms import (
    batch_norms,
    convert_batch_norms,
    find_norm,
    list_norms,
    statistic_names,
    untrained,
)

Builder = TypeVar("Builder", bound=Callable[..., nn.Module])

OLDER_SPEC: dict[str, Any] = {"init": "kaiming_normal", "gain": 1.0, "init_version": 1}
"""What a spec in an older file means where it does not name these settings."""
_RESERVED = frozenset({"name", "seed", "init", "gain", "init_version", "head"})


_architectures: dict[str, tuple[Callable[..., nn.Module], Sequence[str] | None]] = {}
"""Name -> builder, and the norm policies that it can have: None for what its module allows."""


def register_backbone(
    name: str, *, norms: Sequence[str] | None = None
) -> Callable[[Builder], Builder]:
    """A decorator that makes a builder available to `create_backbone` under `name`.

    The builder is called as builder(num_classes=…, **settings), and returns a module; its settings
    are JSON values. Maskable weights are filled by `init`; other random numbers of the builder
    follow the seed too, on one version of torch and family of processor. An attribute `input_shape`
    of the module, such as (3, None, None), lets inputs be checked.

    Batch norms of the module come under the policy that `create_backbone` is asked for, by default
    "per_task". A builder with a parameter `norm` makes its norm layers itself, with
    `networks.norms.make_norm`.

    - `name`: a name that is not taken.
    - `norms`: the norm policies that it can have, the default first; None for all.

    Raises InputError for a name that is taken, unknown policies, and settings named as an argument
    of `create_backbone`.
    """
    if name in _architectures:
        raise InputError(f"a backbone named {name!r} is registered already; choose another name")
    if norms is not None and not norms:
        raise InputError(f"norms of {name} must name at least one policy, got none")
    for norm in norms or ():
        find_norm(norm, owner=name)

    def register(builder: Builder) -> Builder:
        reserved = _RESERVED & set(inspect.signature(builder).parameters)
        if reserved:
            raise InputError(f"the builder of {name} cannot have a setting {min(reserved)!r}")
        _architectures[name] = builder, norms
        return builder

    return register


def list_backbones() -> list[str]:
    """The names that `create_backbone` knows, sorted."""
    return sorted(_architectures)


def create_backbone(
    name: str = "lenet_300_100",
    num_classes: int = 10,
    seed: int = 0,
    init: Init = "signed_constant",
    norm: str | None = None,
    gain: float | None = None,
    init_version: int = INIT_VERSION,
    head: HeadKind = "shared",
    **settings: Any,
) -> Backbone:
    """A random, frozen network; the same arguments give the same weights, on every machine.

    torch's global random state is left as it was.

    - `name`: one of `list_backbones()`.
    - `num_classes`: the network's outputs.
    - `seed`: draws the weights; at least 0.
    - `init`: "signed_constant", or "kaiming_normal" as in the paper.
    - `norm`: a policy of `networks.norms`; by default "none" for lenet_300_100 and linear,
      "per_task" for resnet20, and "batch" for the other residual networks.
    - `gain`: multiplies all weights; by default 2 for signed_constant, the best found for masks of
      sparsity 0.9 on a network without norms, and 1 for kaiming_normal.
    - `init_version`: 1 draws torch's own normal numbers, as the oldest records did; they depend on
      the version of torch and the family of processor.
    - `head`: "shared", or "own" if every task brings its own last layer (see `Backbone`).
    - `settings`: lenet_300_100 takes in_features and widths, linear in_features, the residual
      networks width and in_channels.

    Raises InputError for an unknown name, init, norm or setting and for values out of range.
    """
    build, norm, settings = _planned(name, num_classes, norm, settings)
    seed, gain = check_integer("seed", seed, 0), check_gain(gain, init)
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would seed the accelerators' generators for good.
        torch.default_generator.manual_seed(seed)
        module = build()
    norm = _norm_of(module, name, norm)
    fill_weights(module, init, seed, gain, init_version)
    spec = {
        "name": name,
        "num_classes": int(num_classes),
        "seed": seed,
        "init": init,
        "norm": norm,
        "gain": gain,
        "init_version": int(init_version),
    } | ({"head": head} if head != "shared" else {})
    return Backbone(
        module,
        num_classes=num_classes,
        norm=norm,
        input_shape=getattr(module, "input_shape", None),
        spec=spec | settings,
        head=head,
    )


def count_parameters(name: str, num_classes: int, norm: str | None = None, **settings: Any) -> int:
    """Numbers in the network that `create_backbone` makes with these arguments; none is allocated.

    Raises InputError as `create_backbone`.
    """
    settings = {key: value for key, value in settings.items() if key not in _RESERVED}
    build, _, settings = _planned(name, num_classes, norm, settings)
    try:
        with torch.device("meta"):
            module = build()
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
    include: Collection[str] | None = None,
    input_dtype: torch.dtype | None = None,
    head: HeadKind = "own",
) -> Backbone:
    """A frozen copy of any module that maps inputs (n, ...) to logits (n, classes).

    An output with an attribute or a key `logits`, as models of transformers give, is as good.

    The module itself is left alone; the copy keeps its weights, device and dtype, and everything
    that the module counts in buffers.

    - `module`: linear layers, convolutions and attention are masked. An embedding, or a layer that
      shares its weight, is masked only if it is included, other parameters never;
      `masking_report` lists all of them.
    - `num_classes`: the outputs of a shared head, by default the units of the module's last layer;
      own heads need none.
    - `norm`: what tasks do with batch norm: "shared" (the module's running statistics, frozen; if
      the module has gathered none, the statistics of the first task learned), "per_task" (each
      task's own, starting there) or "batch". A module without batch norm gets "none".
    - `input_shape`: the shape of one input, None for a free size.
    - `skip`, `include`: names of weights, or patterns such as "*.attn.*", to leave unmasked, and to
      mask instead of all.
    - `input_dtype`: what inputs are cast to, by default the dtype of the weights, or int64 (token
      ids) if the first layer is an embedding.
    - `head`: "own" replaces the module's last layer by one for every task, with an output for each
      of its classes; "shared" masks it like the others.

    Raises InputError for a module that cannot be copied or masked, whose last layer cannot be
    replaced or whose parameters are not finite, and for bad settings.
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"adapt takes an nn.Module, got {type(module).__name__}")
    maskable_layers(module, skip, include)
    for name, parameter in module.named_parameters():
        if not parameter.isfinite().all():
            raise InputError(f"{name} of {type(module).__name__} holds NaN or infinite values")
    try:
        frozen = copy.deepcopy(module)
    except (RuntimeError, TypeError) as error:
        line = str(error).split("\n", 1)[0]
        raise InputError(f"{type(module).__name__} cannot be copied: {line}") from error
    norm, outputs = convert_batch_norms(frozen, norm), last_layer(module).units
    if head == "own" and num_classes not in (None, outputs):
        raise InputError(
            f'num_classes = {num_classes} is for head="shared": every task has as many outputs as '
            "classes in a head of its own"
        )
    return Backbone(
        frozen,
        num_classes=outputs if num_classes is None else num_classes,
        norm=norm,
        input_shape=input_shape,
        skip=skip,
        include=include,
        input_dtype=input_dtype,
        pretrained=not untrained(frozen),
        head=head,
    )


def _planned(
    name: str, num_classes: int, norm: str | None, settings: dict[str, Any]
) -> tuple[Callable[[], nn.Module], str | None, dict[str, Any]]:
    """What builds a network, its norm policy if it has one before that, and all its settings."""
    check_known("no backbone", name, list_backbones())
    builder, norms = _architectures[name]
    signature = inspect.signature(builder)
    builds_norms = "norm" in signature.parameters
    if norm is None and (builds_norms or norms is not None):
        norm = list_norms(buildable=True)[0] if norms is None else norms[0]
    if norm is not None:
        find_norm(norm, list_norms(buildable=builds_norms) if norms is None else norms, name)
    fixed: dict[str, Any] = {"num_classes": check_integer("num_classes", num_classes, 1)}
    if builds_norms:
        fixed["norm"] = norm
    try:
        bound = signature.bind(**fixed, **settings)
    except TypeError as error:
        known = ", ".join(key for key in signature.parameters if key not in fixed) or "none"
        raise InputError(f"{name}: {error}; its settings are {known}") from None
    bound.apply_defaults()
    complete = {**dict(zip(signature.parameters, bound.args, strict=False)), **bound.kwargs}
    settings = {key: value for key, value in complete.items() if key not in fixed}
    settings = plain_json(settings, f"the settings of {name}")
    return partial(builder, **fixed, **settings), norm, settings


def _norm_of(module: nn.Module, name: str, norm: str | None) -> str:
    """The norm policy of a network that was built, its batch norms brought under it in place."""
    builds_norms = "norm" in inspect.signature(_architectures[name][0]).parameters
    nothing_to_do = not statistic_names(module) and (norm == "none" or not batch_norms(module))
    if norm is not None and (builds_norms or nothing_to_do):
        return norm
    return convert_batch_norms(module, norm or "per_task")


register_backbone("lenet_300_100", norms=("none",))(lenet_300_100)
register_backbone("linear", norms=("none",))(linear)
register_backbone("resnet18", norms=None)(resnet18)
register_backbone("resnet20", norms=("per_task", "shared"))(resnet20)
register_backbone("resnet50", norms=None)(resnet50)
