"""Describes the frozen network in a store, and builds it again from description and weights.

A registered network is built again from its settings, any other is given by the caller as a module
of the same structure: a file holds numbers and JSON, never code. The weights are kept, one
safetensors record a tensor, or on request only the seed; either way the rebuilt network must have
the fingerprint that was written.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable, Mapping
from itertools import chain
from math import prod
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from impresslearn.errors import ImpressLearnError, InputError, StoreError
from impresslearn.networks import (
    Backbone,
    adapt,
    create_backbone,
    list_backbones,
)
from impresslearn.networks.layers import candidates, maskable_layers
from impresslearn.networks.registry import standard_normals
from impresslearn.store.database import Database
from impresslearn.store.encoding import checksum

LARGEST_UNSTORED = 2**27
"""Parameters of a network that is kept and rebuilt as a seed alone: a file of a few bytes must not
ask for more memory than that."""
READERS: dict[Any, Any] = {"getitem": operator.getitem, "getattr": getattr}
PROBED, PROBED_SIZE, LARGEST_PROBE = 8, 32, 2**20
"""Logits of an input that are probed, a size that is free, and how many numbers go in at most."""
TOLERANCE = 0.02
"""How far probed logits may be apart, as a share of the largest."""


def describe(backbone: Backbone) -> dict[str, Any]:
    """What it takes to rebuild the network, but its weights, as plain values.

    input_dtype: that of inputs, where it is not dtype; logits: what reads them from an output;
    probe: some logits of a module of the user's own, by which another one with the same tensors is
    told (an activation is no tensor).
    """
    given, own = backbone.input_dtype, backbone.dtype
    further: dict[str, Any] = {}
    if given != own:
        further["input_dtype"] = str(given).removeprefix("torch.")
    if backbone.logits_reader is not None:
        further["logits"] = backbone.logits_reader.__name__
    if backbone.spec is None and (probe := _probe(backbone)) is not None:
        further["probe"] = probe
    return {
        "name": backbone.name,
        "spec": backbone.spec,
        "num_classes": backbone.num_classes,
        "norm": backbone.norm,
        "input_shape": None if backbone.input_shape is None else list(backbone.input_shape),
        "pretrained": backbone.pretrained,
        "head": backbone.head,
        "layers": [[layer.name, list(layer.shape)] for layer in backbone.layers],
        "parameters": backbone.num_parameters,
        "dtype": str(own).removeprefix("torch."),
        "fingerprint": backbone.fingerprint(),
    } | further


def add_tensors(database: Database, backbone: Backbone) -> None:
    """Writes every parameter and buffer, each as safetensors under its name."""
    for name, tensor in _tensors(backbone.module):
        content = safetensors.torch.save({name: tensor.detach().cpu().contiguous()})
        query = "INSERT INTO tensors VALUES (?, ?, ?)"
        database.write(query, name, content, checksum(content))


def network_of(
    database: Database,
    description: Mapping[str, Any],
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
) -> Backbone:
    """The network of a store. Raises StoreError where it cannot be built again.

    module: the structure of a network that is not registered; it is copied.
    """
    try:
        backbone = _rebuilt(database, description, module)
    except InputError as error:
        given = "its settings" if module is None else f"this {type(module).__name__}"
        line = f"the network of {database.where} cannot be built from {given}: {error}"
        raise StoreError(line) from None
    except ImpressLearnError:
        raise
    except Exception as error:  # a file may describe anything, and a caller's builder raise it
        raise database.damaged(f"its network: {error}") from None
    return backbone if str(device) == str(backbone.device) else backbone.to(device)


def _rebuilt(
    database: Database, description: Mapping[str, Any], module: nn.Module | None
) -> Backbone:
    where, spec = database.where, description["spec"]
    layers = [(name, tuple(shape)) for name, shape in description["layers"]]
    if module is not None:
        backbone = _around(module, description, where)
        kept = {"spec": spec, "pretrained": bool(description["pretrained"])}
        vars(backbone).update(kept)  # as they were when the store was made
    elif spec is None or _is_unknown(spec.get("name")):
        first = "" if spec is None else "import what registers it (il.register_backbone), or "
        raise StoreError(
            f"{where} was made with a network of your own, {description['name']}; {first}pass one "
            "of the same structure as module=..., on the command line as --module FILE:FUNCTION"
        )
    else:
        backbone = create_backbone(**spec)
    inputs = description.get("input_dtype")
    vars(backbone)["_input_dtype"] = None if inputs is None else _dtype(inputs, where)
    vars(backbone)["logits_reader"] = READERS.get(description.get("logits"))
    if [(layer.name, layer.shape) for layer in backbone.layers] != layers:
        raise StoreError(f"the maskable layers of {backbone.name} are not those in {where}")
    _fill(backbone, database)
    backbone._link()  # what it holds beside the tensors depends on their values
    if backbone.fingerprint() != description["fingerprint"]:
        raise StoreError(
            f"the network rebuilt for {where} is not the one its tasks were learned on (SHA-256 "
            "differs); where torch drew weights that the store does not hold (init_version 1, or "
            "a builder of your own), the torch version and processor that wrote it are needed, "
            "any other is damaged"
        )
    if (known := description.get("probe")) and not _agree(known, _probe(backbone)):
        raise StoreError(
            f"this {backbone.name} computes something else than that of {where}, with the same "
            "weights: other activations, say; pass the module that the store was made with"
        )
    if not all(weight.isfinite().all() for weight in backbone.weights.values()):
        raise StoreError(f"the network of {where} has weights that are NaN or infinite")
    return backbone


def _probe(backbone: Backbone) -> list[float] | None:
    """Some logits of the network as it is, for two inputs that are always the same.

    None where there are none: where it takes no such inputs, or draws, and for half precision, in
    which processors differ too much.
    """
    if backbone.input_shape is None or backbone.dtype not in (torch.float32, torch.float64):
        return None
    shape = (2, *(size or PROBED_SIZE for size in backbone.input_shape))
    if prod(shape) > LARGEST_PROBE:
        return None
    values = torch.from_numpy(standard_normals(prod(shape), 0, 0)).reshape(shape)
    if not backbone.input_dtype.is_floating_point:  # ids
        values = values.abs().round()
    inputs = values.to(backbone.device, backbone.input_dtype)
    try:
        with torch.no_grad():
            once, again = (backbone.forward({}, inputs).double().cpu() for _ in range(2))
    except Exception:  # a module may raise anything, on inputs that it was not made for
        return None
    sound = torch.equal(once, again) and bool(once.isfinite().all())
    return [float(f"{each:.4g}") for each in once[:, :PROBED].flatten()] if sound else None


def _agree(known: list[float], found: list[float] | None) -> bool:
    """Whether logits are the same but for what processors differ in."""
    if found is None or len(found) != len(known):
        return False
    apart = max(abs(a - b) for a, b in zip(known, found, strict=True))
    return apart <= TOLERANCE * max(map(abs, known)) + 1e-6


def _is_unknown(name: Any) -> bool:
    return isinstance(name, str) and name not in list_backbones()


def _around(module: nn.Module, description: Mapping[str, Any], where: str) -> Backbone:
    norm, shape, outputs = (description[key] for key in ("norm", "input_shape", "num_classes"))
    dtype = _dtype(description["dtype"], where)
    head = description.get("head", "shared")
    if isinstance(module, Backbone):
        raise InputError(f"pass the module that was adapted; the store knows its head, {head!r}")
    if not isinstance(module, nn.Module):
        raise InputError("it is no nn.Module")
    kept = {name for name, _ in description["layers"]}
    found = [name for each in candidates(module) if (name := each.layer.name) in kept]
    if missing := kept.difference(found):
        raise InputError(f"it has no maskable layer {min(missing)!r}")
    include = found or None  # a network that is nothing but its head
    layers = maskable_layers(module, include=include)
    if module.get_parameter(layers[0].parameter).dtype != dtype:
        module = copy.deepcopy(module).to(dtype)
    settings: dict[str, Any] = {"input_shape": shape, "include": include, "head": head}
    if norm in ("none", "group"):  # which `adapt` does not give where there is batch norm
        return Backbone(copy.deepcopy(module), num_classes=outputs, norm=norm, **settings)
    return adapt(module, num_classes=None if head == "own" else outputs, norm=norm, **settings)


def _dtype(name: object, where: str) -> torch.dtype:
    found = getattr(torch, str(name), None)
    if not isinstance(found, torch.dtype):
        raise StoreError(f"{where} names the unknown number format {name!r}")
    return found


def _fill(backbone: Backbone, database: Database) -> None:
    """Puts the stored tensors in place of the network's own."""
    own = dict(_tensors(backbone.module))
    for (name,) in database.rows("SELECT name FROM tensors ORDER BY name"):
        # One at a time: a large network is then never in memory twice.
        query = "SELECT content, checksum FROM tensors WHERE name = ?"
        content, written = database.rows(query, name)[0]
        if checksum(content) != written:
            raise database.damaged(f"the weights {name!r} are not what was written")
        tensor = safetensors.torch.load(content)[name]
        if name not in own or own[name].shape != tensor.shape or own[name].dtype != tensor.dtype:
            raise StoreError(f"the weights {name!r} of {database.where} belong to another network")
        with torch.no_grad():
            own[name].copy_(tensor)


def _tensors(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())
