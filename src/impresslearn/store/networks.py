"""The frozen network of a store: its description and weights, and a `Backbone` from them.

A registered network is built again from its settings, any other is given by the caller as a module
of the same structure: a file holds numbers and JSON, never code. The weights are kept, one
safetensors record a tensor, or on request only the seed; either way the rebuilt network must have
the fingerprint that was written.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from impresslearn.errors import ImpressLearnError, InputError, StoreError
from impresslearn.networks import Backbone, adapt, count_parameters, create_backbone
from impresslearn.networks.layers import maskable_layers
from impresslearn.networks.registry import OLDER_SPEC

LARGEST_UNSTORED = 2**27
"""Parameters of a network that is kept and rebuilt as a seed alone: a file of a few bytes must not
ask for more memory than that."""
LONGEST_SETTING = 4096
"""Items of a list among a network's settings: each may be a layer."""


def describe(backbone: Backbone) -> dict[str, Any]:
    """What it takes to rebuild the network, but its weights, as plain values."""
    return {
        "name": backbone.name,
        "spec": backbone.spec,
        "num_classes": backbone.num_classes,
        "norm": backbone.norm,
        "input_shape": None if backbone.input_shape is None else list(backbone.input_shape),
        "pretrained": backbone.pretrained,
        "layers": [[layer.name, list(layer.shape)] for layer in backbone.layers],
        "parameters": backbone.num_parameters,
        "dtype": str(backbone.dtype).removeprefix("torch."),
        "fingerprint": backbone.fingerprint(),
    }


def check_description(description: Mapping[str, Any]) -> None:
    """Raises ValueError or KeyError for what `describe` cannot have written."""
    kinds = {"name": str, "num_classes": int, "norm": str, "pretrained": bool, "parameters": int,
             "dtype": str, "fingerprint": str, "layers": list}  # fmt: skip
    wrong = [key for key, kind in kinds.items() if type(description[key]) is not kind]
    wrong += [] if isinstance(description["spec"], dict | None) else ["spec"]
    shapes = [shape for _, shape in description["layers"]] if not wrong else []
    shapes += [[size or 1 for size in description["input_shape"] or ()]]
    if wrong or not all(type(size) is int for shape in shapes for size in shape):
        raise ValueError(f"it says nothing usable of {', '.join(wrong) or 'shapes'}")


def tensor_records(backbone: Backbone) -> Iterable[tuple[str, bytes]]:
    """Name and safetensors bytes of every parameter and buffer."""
    for name, tensor in _tensors(backbone.module):
        content = tensor.detach().cpu().contiguous()
        yield name, safetensors.torch.save({name: content})


def rebuild(
    description: Mapping[str, Any],
    records: Iterable[tuple[str, bytes]],
    stored_bytes: int,
    module: nn.Module | None,
    where: str,
) -> Backbone:
    """The network that was described; records: its stored tensors, none if only the seed was kept.

    module: the structure of a network that is not registered; it is copied. Raises StoreError
    where it cannot be the same network.
    """
    layers = [(name, tuple(shape)) for name, shape in description["layers"]]
    if module is not None:
        backbone = _around(module, description, where)
        kept = {"spec": description["spec"], "pretrained": bool(description["pretrained"])}
        vars(backbone).update(kept)  # as they were when the store was made
    elif description["spec"] is None:
        raise StoreError(
            f"{where} was made with a module of your own, {description['name']}; pass one of the "
            "same structure as module=..."
        )
    else:
        backbone = _from_spec(description["spec"], stored_bytes, where)
    if [(layer.name, layer.shape) for layer in backbone.layers] != layers:
        raise StoreError(f"the maskable layers of {backbone.name} are not those in {where}")
    _fill(backbone, records, where)
    if backbone.fingerprint() != description["fingerprint"]:
        raise StoreError(
            f"the network rebuilt for {where} is not the one its tasks were learned on (SHA-256 "
            "differs); where torch drew weights that the store does not hold (init_version 1, or "
            "a builder of your own), the torch version and processor that wrote it are needed, "
            "any other is damaged"
        )
    if not all(weight.isfinite().all() for weight in backbone.weights.values()):
        raise StoreError(f"the network of {where} has weights that are NaN or infinite")
    return backbone


def _from_spec(spec: Mapping[str, Any], stored_bytes: int, where: str) -> Backbone:
    if any(isinstance(each, list) and len(each) > LONGEST_SETTING for each in spec.values()):
        raise StoreError(f"{where} describes a network of too many layers")
    try:
        parameters = count_parameters(**spec)
        allowed = stored_bytes if stored_bytes else LARGEST_UNSTORED
        if parameters > allowed:
            raise StoreError(
                f"{where} is damaged: it describes a network of {parameters:.3g} parameters, more "
                "than it holds"
            )
        return create_backbone(**OLDER_SPEC | spec)
    except StoreError:
        raise
    except ImpressLearnError as error:
        raise StoreError(f"the network of {where} cannot be built: {error}") from None


def _around(module: nn.Module, description: Mapping[str, Any], where: str) -> Backbone:
    kept = {name for name, _ in description["layers"]}
    norm, shape = description["norm"], description["input_shape"]
    try:
        if not isinstance(module, nn.Module):
            raise InputError("it is no nn.Module")
        layers = maskable_layers(module)
        skip = [layer.name for layer in layers if layer.name not in kept]
        dtype = _dtype(description["dtype"], where)
        if module.get_parameter(layers[0].name).dtype != dtype:
            module = copy.deepcopy(module).to(dtype)
        how: dict[str, Any] = {"norm": norm, "input_shape": shape, "skip": skip}
        if norm in ("none", "group"):  # which `adapt` does not give where there is batch norm
            how["module"] = copy.deepcopy(module)
            return Backbone(num_classes=description["num_classes"], **how)
        return adapt(module, num_classes=description["num_classes"], **how)
    except InputError as error:
        kind = type(module).__name__
        raise StoreError(f"this {kind} is not the network of {where}: {error}") from None


def _dtype(name: str, where: str) -> torch.dtype:
    wanted = getattr(torch, name, None)
    if not isinstance(wanted, torch.dtype):
        raise StoreError(f"{where} names the unknown number format {name!r}")
    return wanted


def _fill(backbone: Backbone, records: Iterable[tuple[str, bytes]], where: str) -> None:
    """Puts the stored tensors in place of the network's own."""
    own = dict(_tensors(backbone.module))
    for name, content in records:
        try:
            tensor = safetensors.torch.load(content)[name]
        except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError):
            raise StoreError(f"{where} is damaged: the weights {name!r} are no tensor") from None
        if name not in own or own[name].shape != tensor.shape or own[name].dtype != tensor.dtype:
            raise StoreError(f"the weights {name!r} of {where} belong to another network")
        with torch.no_grad():
            own[name].copy_(tensor)


def _tensors(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())
