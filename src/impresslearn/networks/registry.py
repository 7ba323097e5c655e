"""Makes a `Backbone`: `create_backbone` a random network by name, `adapt` from any module.

Random weights have standard deviation sqrt(2 / fan_in) (He et al., "Delving Deep into Rectifiers",
2015). The ImpressLearn paper draws them as "kaiming_normal". Its code draws "signed_constant", as
in Ramanujan et al., "What's Hidden in a Randomly Weighted Neural Network?" (2020). Weights are the
same bits on every machine: the polar method (Marsaglia and Bray, 1964) on NumPy's Philox integers.
"""

import copy
import inspect
from collections.abc import Callable, Collection, Sequence
from math import sqrt
from types import FunctionType
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from torch import nn

from impresslearn.checks import (
    check_choice,
    check_integer,
    check_known,
    check_number,
    clear_calls,
    plain_json,
)
from impresslearn.errors import InputError
from impresslearn.networks.architectures import lenet_300_100, linear, resnet18, resnet20, resnet50
from impresslearn.networks.backbone import Backbone
from impresslearn.networks.layers import MASKABLE, HeadKind, last_layer, maskable_layers, unwrapped
from impresslearn.networks.norms import batch_norms, buildable, convert_batch_norms, untrained

Builder = TypeVar("Builder", bound=Callable[..., nn.Module])
Init = Literal["signed_constant", "kaiming_normal"]
# A mask of sparsity 0.9 makes the outputs of each layer about three times smaller, and without
# norms nothing restores their size. On permuted MNIST, doubled weights took a mask from 95.6% to
# 97.3–97.5% (gain 3: 96.7–97.4%, gain 0.5: 84%). The paper's gain is 1.
GAINS: dict[str, float] = {"signed_constant": 2.0, "kaiming_normal": 1.0}
INIT_VERSION = 2
RESERVED = frozenset({"name", "seed", "init", "gain", "init_version", "head"})
# Pairs of normals drawn in one step; the arrays fit the processor's cache. Does not change results.
CHUNK = 2**14
STREAM = 2  # in Philox's counter: 2 for weights, 0 for random masks, 1 for disjoint masks
LOG_2 = 0.6931471805599453
SQRT_HALF = 0.7071067811865476
TERMS = 12  # of the logarithm's series; the next term is below 1e-19 of the first

BUILT_IN = (lenet_300_100, linear, resnet18, resnet20, resnet50)
_builders: dict[str, Callable[..., nn.Module]] = {each.__name__: each for each in BUILT_IN}


def register_backbone(name: str) -> Callable[[Builder], Builder]:
    """A decorator that makes a builder available to `create_backbone` under `name`.

    The builder is called as builder(num_classes=…, **settings), and returns a module; its settings
    are JSON values. Maskable weights are then filled as `init` says. Other random numbers that the
    builder draws with torch also follow the seed, but depend on torch's version and the processor.
    If the module has an attribute `input_shape`, such as (3, None, None), inputs are checked. Batch
    norms follow the `norm` of `create_backbone`, by default "per_task". A builder with a parameter
    `norm` makes its norm layers itself, with `networks.norms.make_norm`.

    Raises InputError for a name that is taken, and for settings named as in `create_backbone`.
    """
    if name in _builders:
        raise InputError(f"a backbone named {name!r} is registered already; choose another name")

    def register(builder: Builder) -> Builder:
        reserved = RESERVED & set(inspect.signature(builder).parameters)
        if reserved:
            raise InputError(f"the builder of {name} cannot have a setting {min(reserved)!r}")
        _builders[name] = builder
        return builder

    return register


def list_backbones() -> list[str]:
    """The names that `create_backbone` knows, sorted."""
    return sorted(_builders)


@torch.inference_mode(False)  # autograd rejects tensors made in inference mode
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
    - `seed`: the seed of the weights, at least 0.
    - `init`: "signed_constant" (default), or "kaiming_normal" as in the paper.
    - `norm`: a policy of `networks.norms`; by default "none" for lenet_300_100 and linear,
      "per_task" for resnet20, and "batch" for the other residual networks.
    - `gain`: a factor for all weights; by default 1 for kaiming_normal and 2 for signed_constant,
      the best value found for masks of sparsity 0.9 on a network without norms.
    - `init_version`: default 2; 1 draws torch's normal numbers, as in the oldest records, which
      depend on torch's version and the processor.
    - `head`: "shared" (default), or "own" if every task has its own last layer (see `Backbone`).
    - `settings`: of the network: in_features and widths for lenet_300_100; in_features for linear;
      width and in_channels for the residual networks; also depth for resnet20.

    Raises InputError for an unknown name, init, norm or setting and for values out of range.
    """
    check_known("no backbone", name, list_backbones())
    check_choice("init", init, get_args(Init))
    seed, num_classes = check_integer("seed", seed, 0), check_integer("num_classes", num_classes, 1)
    init_version = check_integer("init_version", init_version, 1, INIT_VERSION + 1)
    gain = check_number("gain", GAINS[init] if gain is None else gain)
    if gain <= 0:
        raise InputError(f"gain must be a positive number, got {gain!r}")
    builder = _builders[name]
    parameters = inspect.signature(builder).parameters
    builds_norms = "norm" in parameters
    fixed: dict[str, Any] = {"num_classes": num_classes}
    if builds_norms:
        choices = list(buildable())
        norm = fixed["norm"] = check_choice(f"norm of {name}", norm or choices[0], choices)
    defaults: dict[str, Any] = {}
    for key, parameter in parameters.items():
        if key not in fixed and parameter.default is not parameter.empty:
            defaults[key] = parameter.default
    settings = plain_json(defaults | settings, f"the settings of {name}")
    try:
        inspect.signature(builder).bind(**fixed, **settings)
    except TypeError as error:
        for key in settings:
            check_known(f"{name} has no setting", key, sorted({*RESERVED, *parameters}))
        raise InputError(f"{name}: {error}") from None
    # Builders name no dtype and no device, so the caller's own defaults would change the network.
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            # torch.manual_seed would also seed the accelerators' generators, for good.
            torch.default_generator.manual_seed(seed)
            module = builder(**fixed, **settings)
    finally:
        torch.set_default_dtype(dtype)
    if norm is None or not builds_norms:
        if norm not in (None, "none") and not batch_norms(module):
            raise InputError(f"norm of {name} must be none, got {norm!r}: it has no batch norm")
        norm = convert_batch_norms(module, norm or "per_task")
    fill_weights(module, init, seed, gain, init_version)
    spec: dict[str, Any] = {"name": name, "num_classes": num_classes, "seed": seed}
    spec |= {"init": init, "norm": norm, "gain": gain, "init_version": init_version}
    spec |= {} if head == "shared" else {"head": head}
    spec |= settings
    shape = getattr(module, "input_shape", None)
    return Backbone(
        module, num_classes=num_classes, norm=norm, input_shape=shape, spec=spec, head=head
    )


@torch.inference_mode(False)
@clear_calls
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

    The module itself is not changed; the copy has the same weights, buffers, device and dtype. The
    module may return logits as a tensor, or as an attribute or key `logits`, like the models of
    transformers. `backbone.layers` lists the layers that masks cover.

    - `module`: masks cover its linear layers, convolutions and attention. They cover an embedding,
      or a layer that shares its weight, only if it is in `include`; computed weights, never.
    - `num_classes`: the outputs of a shared head; by default the last layer's. Own heads need none.
    - `norm`: what tasks do with batch norm: "shared" (the module's running statistics, frozen; if
      the module has gathered none, the statistics of the first task learned), "per_task" (each
      task's own, starting there) or "batch". A module without batch norm gets "none".
    - `input_shape`: the shape of one input, with None for a free size. If it has one size, such as
      (784,), inputs of any shape with that number of values are accepted and flattened.
    - `skip`, `include`: names of weights, or patterns such as "*.attn.*": weights to leave
      unmasked, and the only weights to mask. A shared weight goes by its first name.
    - `input_dtype`: the dtype that inputs are cast to; by default the dtype of the weights, or
      int64 (token ids) if the first layer is an embedding.
    - `head`: "own" (default) gives every task its own last layer, with one output per class;
      "shared" masks the module's last layer like the others.

    Raises InputError for bad settings, and unless the module can be copied, masked and given heads.
    """
    module = unwrapped(module)
    maskable_layers(module, skip, include)  # finds bad names before anything is copied
    for name, parameter in module.named_parameters():
        if parameter.is_meta:
            line = f"{name} of {type(module).__name__} is on meta, which holds no values"
            raise InputError(f"{line}; load its weights first")
        if not parameter.detach().isfinite().all():
            raise InputError(f"{name} of {type(module).__name__} holds NaN or infinite values")
    frozen = copied(module)
    norm = convert_batch_norms(frozen, norm)
    _, last = last_layer(frozen)
    outputs = int(last.nf if hasattr(last, "nf") else last.weight.shape[0])  # type: ignore
    if head == "own" and num_classes not in (None, outputs):
        raise InputError(f'num_classes = {num_classes} needs head="shared"; else leave it out')
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


def copied(module: nn.Module) -> nn.Module:
    """A copy that shares nothing with the module. Raises InputError if it cannot be copied."""
    kind, own = type(module).__name__, {id(part) for part in module.modules()}
    for name, owner in module.named_modules():
        where = f"{name} of {kind}" if name else kind
        hooks = (*owner._forward_pre_hooks.values(), *owner._forward_hooks.values())
        attributes = {**vars(owner), "_compiled_call_impl": None}  # no copy keeps what is compiled
        for key, value in (*attributes.items(), *enumerate(hooks)):
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                line = f"{kind} cannot be copied: {key} of {where} was computed with gradients"
                hint = "detach it, or compute weights by torch.nn.utils.parametrizations"
                raise InputError(f"{line}; {hint}")
            for cell in (isinstance(value, FunctionType) and value.__closure__) or ():
                held = cell.cell_contents
                if id(getattr(held, "__self__", held)) in own:
                    line = f"a hook or lambda of {where} refers to its network, also from a copy"
                    raise InputError(f"{line}; make it a method")
    try:
        return copy.deepcopy(module)
    except (RuntimeError, TypeError) as error:
        line = str(error).split("\n", 1)[0]
        hint = f"remove that before adapt, or give {kind} a method __deepcopy__"
        raise InputError(f"{kind} cannot be copied: {line}; {hint}") from error


def fill_weights(module: nn.Module, init: Init, seed: int, gain: float, version: int) -> None:
    """Fills the weights of linear layers and convolutions in place, and nothing else.

    Numbers are drawn on the CPU in float32, whatever the module's device and dtype. Arguments are
    as in `create_backbone`. For "kaiming_normal", weights are normal numbers times
    gain * sqrt(2 / fan_in); for "signed_constant", the signs of the same numbers times that factor.
    """
    in_turn = torch.Generator().manual_seed(seed) if version == 1 else None
    weights: dict[int, torch.Tensor] = {}  # fills a shared weight once
    for layer in module.modules():
        if isinstance(layer, MASKABLE) and layer._parameters.get("weight") is not None:
            weights.setdefault(id(layer.weight), layer.weight)
    with torch.no_grad():
        for place, weight in enumerate(weights.values()):
            if in_turn is not None:
                values = torch.randn(weight.shape, generator=in_turn, dtype=torch.float32)
            else:  # each layer has its own sequence, which does not depend on other layers
                normals = standard_normals(weight.numel(), seed, place)
                values = torch.from_numpy(normals).reshape(weight.shape)
            if init == "signed_constant":
                values = torch.where(values < 0, -1.0, 1.0).float()
            weight.copy_(values * (gain * sqrt(2 / weight[0].numel())))


def standard_normals(count: int, seed: int, place: int) -> np.ndarray:
    """(count,) float32 of mean 0 and variance 1. place: the number of a sequence of this seed."""
    # The arithmetic is +, -, *, / and square roots in float64, for which IEEE 754 defines the exact
    # result; the logarithm is a series of them. Each operation is a pass over an array, so that no
    # compiler can fuse two operations and round only once.
    stream = np.random.Philox(key=seed, counter=[0, STREAM, 0, place])
    normals = np.empty(count, dtype=np.float32)
    filled = 0
    while filled < count:
        pairs = min(CHUNK, count)
        uniform = (stream.random_raw(2 * pairs) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1
        x, y = uniform[::2], uniform[1::2]
        square = x * x + y * y
        inside = (square > 0) & (square < 1)
        square = square[inside]
        factor = np.sqrt(-2 * _log(square) / square)
        both = np.stack([x[inside] * factor, y[inside] * factor], axis=1).reshape(-1)
        both = both[: count - filled]
        normals[filled : filled + both.size] = both
        filled += both.size
    return normals


def _log(values: np.ndarray) -> np.ndarray:
    """Natural logarithms of positive numbers: log(m 2^e) = 2 artanh((m-1) / (m+1)) + e log 2."""
    mantissa, exponent = np.frexp(values)
    low = mantissa < SQRT_HALF
    mantissa = np.where(low, 2 * mantissa, mantissa)
    ratio = (mantissa - 1) / (mantissa + 1)
    square = ratio * ratio
    series = np.full_like(square, 1 / (2 * TERMS - 1))
    for term in range(TERMS - 1, 0, -1):
        series = series * square + 1 / (2 * term - 1)
    return 2 * ratio * series + (exponent - low) * LOG_2
