"""Describes a store's frozen network, and rebuilds it from this description and its weights.

A file holds numbers and JSON, never code. So a registered network is rebuilt from its settings; for
any other, the caller passes a module of the same structure. The store keeps the weights, one
safetensors record per tensor, or only the seed. It refuses a network with another fingerprint.
"""

import copy
import operator
from collections.abc import Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any

import safetensors.torch
import torch
from torch import nn

from impresslearn.data import Inputs
from impresslearn.errors import ImpressLearnError, InputError, StoreError
from impresslearn.networks import Backbone, adapt, create_backbone, list_backbones
from impresslearn.networks.layers import candidates, unwrapped
from impresslearn.networks.registry import copied, standard_normals
from impresslearn.store.database import Database, checksum

READERS: dict[Any, Any] = {"getitem": operator.getitem, "getattr": getattr}
# A probe: logits kept per input, the value for a free size of the input, and its most numbers.
PROBED, PROBED_SIZE, LARGEST_PROBE = 8, 32, 2**20
TOLERANCE = 0.02  # the largest difference of probed logits, as a share of the largest logit


def describe(backbone: Backbone) -> dict[str, Any]:
    """All that is needed to rebuild the network, except its weights, as plain values.

    Its key "probe" has some logits of a user's module, which reveal other activations, for example.
    """
    plain: dict[str, Any] = {
        "name": backbone.name,
        "spec": backbone.spec,
        "num_classes": backbone.num_classes,
        "norm": backbone.norm,
        "input_shape": None if backbone.input_shape is None else list(backbone.input_shape),
        "pretrained": backbone.pretrained,
        "head": backbone.head,
        "layers": [[layer.name, list(layer.shape)] for layer in backbone.layers],
        "parameters": backbone.num_parameters,
        "dtype": str(backbone.dtype).removeprefix("torch."),
        "fingerprint": backbone.fingerprint(),
    }
    if backbone.input_dtype != backbone.dtype:
        plain["input_dtype"] = str(backbone.input_dtype).removeprefix("torch.")
    if backbone.logits_reader is not None:
        plain["logits"] = backbone.logits_reader.__name__
    if backbone.spec is None:
        plain |= {"probe": _probe(backbone), "seen_inputs": backbone.seen_inputs}
    return plain


def add_tensors(database: Database, backbone: Backbone) -> None:
    """Writes every parameter and buffer as safetensors, one record per tensor."""
    module = backbone.module
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        content = safetensors.torch.save({name: tensor.detach().cpu().contiguous()})
        database.write("INSERT INTO tensors VALUES (?, ?, ?)", name, content, checksum(content))


@torch.inference_mode(False)  # autograd rejects tensors made in inference mode
def network_of(
    database: Database,
    description: Mapping[str, Any],
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
) -> Backbone:
    """The network of a store. Raises StoreError if it cannot be rebuilt.

    module: the structure of a network that is not registered; it is copied.
    """
    try:
        backbone = _rebuilt(database, description, module)
    except InputError as error:
        origin = "its settings" if module is None else f"this {type(module).__name__}"
        line = f"the network of {database.where} cannot be built from {origin}: {error}"
        raise StoreError(line) from None
    except ImpressLearnError:
        raise
    except Exception as error:  # a user's builder may raise anything
        raise database.damaged(f"its network: {error}") from None
    return backbone if str(device) == str(backbone.device) else backbone.to(device)


def _rebuilt(
    database: Database, description: Mapping[str, Any], module: nn.Module | None
) -> Backbone:
    where, spec = database.where, description["spec"]
    if module is not None:
        backbone = _around(module, description)
        vars(backbone)["spec"] = spec  # as it was when the store was made
    elif spec is None or spec["name"] not in list_backbones():
        hint = "" if spec is None else "import what registers it (il.register_backbone), or "
        raise StoreError(
            f"{where} was made with your own network, {description['name']}; {hint}pass one "
            "of the same structure as module=..., on the command line as --module FILE:FUNCTION"
        )
    else:
        backbone = create_backbone(**spec)
        backbone.module.to(getattr(torch, description["dtype"]))
    kind = description.get("input_dtype", description["dtype"])
    shape = description.get("seen_shape")  # in older stores, of one tensor
    vars(backbone).update(
        pretrained=description["pretrained"],
        _input_dtype=getattr(torch, kind) if "input_dtype" in description else None,
        seen_inputs=description.get("seen_inputs", () if shape is None else [(0, shape, kind)]),
        logits_reader=READERS.get(description.get("logits")),
    )
    _fill(backbone, database)
    backbone._link()  # some of its attributes depend on the tensors' values
    if backbone.fingerprint() != description["fingerprint"]:
        raise StoreError(
            f"the network rebuilt for {where} is not the one its tasks were learned on (SHA-256 "
            "differs); if the store holds no weights, use the torch version and processor that "
            "wrote it; otherwise it is damaged"
        )
    known = description.get("probe") or ()
    logits = (known and _probe(backbone)) or ()
    # Logits may differ by rounding, which depends on the processor.
    room = TOLERANCE * max(map(abs, known), default=0.0) + 1e-6
    far = (abs(one - other) > room for one, other in zip(known, logits, strict=False))
    if known and (len(known) != len(logits) or any(far)):
        raise StoreError(
            f"this {backbone.name} computes something else than the network of {where}, with the "
            "same weights; give it the same activations, and register all its layers and tensors "
            "(nn.ModuleList, register_buffer) before a store is made, which keeps no others"
        )
    return backbone


def _around(module: nn.Module, description: Mapping[str, Any]) -> Backbone:
    """The caller's module, adapted as the store's module was."""
    norm, num_classes, head = (description[key] for key in ("norm", "num_classes", "head"))
    if isinstance(module, Backbone):
        raise InputError(f"pass the module that was adapted; the store knows its head, {head!r}")
    module = unwrapped(module)
    masked = [name for name, _ in description["layers"]]
    maskable = {layer.name: layer for layer in candidates(module)}
    for name in masked:
        if name not in maskable:
            hint = "leave out the module, or " if description["spec"] else ""
            line = f"it has no maskable layer {name!r}; {hint}give a {description['name']}"
            raise InputError(f"{line} made as the store's")
    module = copied(module)
    if masked:
        dtype = getattr(torch, description["dtype"])
        if module.get_parameter(maskable[masked[0]].parameter).dtype != dtype:
            module = module.to(dtype)
    # A network may consist of its head alone.
    settings: dict[str, Any] = {"include": masked or None, "head": head}
    settings["input_shape"] = description["input_shape"]
    if norm in ("none", "group"):  # `adapt` has no such policy for batch norm
        return Backbone(module, num_classes=num_classes, norm=norm, **settings)
    return adapt(module, num_classes=None if head == "own" else num_classes, norm=norm, **settings)


def _fill(backbone: Backbone, database: Database) -> None:
    """Puts the stored tensors in place of the network's own."""
    module = backbone.module
    tensors = dict(chain(module.named_parameters(), module.named_buffers()))
    for (name,) in database.rows("SELECT name FROM tensors ORDER BY name"):
        # Load one tensor at a time, so that a large network is never in memory twice.
        content = database.content("tensors", name)
        stored, present = safetensors.torch.load(content)[name], tensors.get(name)
        if present is None or present.shape != stored.shape or present.dtype != stored.dtype:
            raise StoreError(f"the weights {name!r} of {database.where} belong to another network")
        with torch.no_grad():
            present.copy_(stored)


def _probe(backbone: Backbone) -> list[float] | None:
    """Some logits of the frozen network for two fixed inputs.

    None if the network takes no such inputs or draws random numbers. A network in half precision
    is copied to float32, where processors differ less; None if it is too large for that.
    """
    if backbone.dtype in (torch.float16, torch.bfloat16):
        if backbone.num_parameters > 2**26:
            return None
        backbone = copy.deepcopy(backbone)
        backbone.module.float()
        backbone._link()
    forms: Sequence[Any] = backbone.seen_inputs or [(0, backbone.input_shape, "")]
    several = len(forms) > 1 or isinstance(forms[0][0], str)
    made = {}
    for name, sizes, kind in forms:
        shape = (2, *(size or PROBED_SIZE for size in sizes or ()))
        if sizes is None or prod(shape) > LARGEST_PROBE:
            return None
        values = torch.from_numpy(standard_normals(prod(shape), 0, 0)).reshape(shape)
        dtype = getattr(torch, kind) if several else backbone.input_dtype
        if not dtype.is_floating_point:  # ids; among several inputs also masks and types of tokens
            values = torch.ones_like(values) if several else values.abs().round()
        made[name] = values.to(dtype)
    inputs = Inputs.from_items(made) if several else made[0]
    inputs = inputs.to(backbone.device, backbone.input_dtype)
    try:
        with torch.no_grad():
            logits = backbone.forward({}, inputs).double().cpu()
            again = backbone.forward({}, inputs).double().cpu()
    except Exception:  # a module may raise anything on inputs it was not made for
        return None
    if not torch.equal(logits, again) or not logits.isfinite().all():
        return None
    return [float(f"{logit:.4g}") for logit in logits[:, :PROBED].flatten()]
