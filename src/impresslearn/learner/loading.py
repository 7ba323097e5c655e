"""Creates learners: new ones, in memory from a file (`load`), or on a file (`open_store`)."""

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import nn

from impresslearn.checks import check_known, clear_calls
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError, StoreDamagedError, StoreError
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.presets import preset as find_preset
from impresslearn.learner.presets import restored_settings
from impresslearn.networks import Backbone, create_backbone
from impresslearn.store.store import CACHE_BYTES
from impresslearn.store.store_files import open_file


def create_learner(
    shape: Sequence[int],
    classes: int,
    *,
    preset: str = "default",
    backbone: Backbone | str | None = None,
    network: Mapping[str, Any] | None = None,
    preprocessing: Preprocessing | None = None,
    seed: int = 0,
    **settings: Any,
) -> ImpressLearner:
    """A learner without tasks, with the masks of its preset, for inputs of a given shape.

    - shape: the shape of one input, without the batch; () for sentences and several inputs.
    - classes: the number of outputs of the network.
    - network: settings of `create_backbone`, which override those from shape and preset.
    - preprocessing: for a flat network it gets this shape if it has none.
    """
    chosen = find_preset(preset)
    if not isinstance(backbone, Backbone):
        if chosen.more.get("start") == "network" or not shape:
            what = f"the preset {preset!r} needs a pretrained network"
            what = what if shape else "sentences and several inputs need a network of your own"
            line = "give il.adapt(module), or --module FILE:FUNCTION on the command line"
            raise InputError(f"{what}; {line}")
        arguments: dict[str, Any] = {
            "name": backbone or "lenet_300_100",
            "num_classes": classes,
            "seed": seed,
            "head": "own" if chosen.own_head else "shared",
            "init": chosen.init,
            "gain": chosen.gain,
            **(network or {}),
        }
        # The spec of the network shows which sizes it has. Sizes not given come from the shape.
        spec = create_backbone(**arguments).spec or {}
        if "in_features" in spec:
            arguments["in_features"] = prod(shape)
        if "in_channels" in spec and len(shape) == 3:
            arguments["in_channels"] = shape[0]
        backbone = create_backbone(**arguments | dict(network or {}))
    is_flat = backbone.input_shape is not None and len(backbone.input_shape) == 1
    if preprocessing is not None and preprocessing.shape is None and is_flat and len(shape) > 1:
        # A flat network accepts values in any order, so later inputs must have the same shape.
        preprocessing = replace(preprocessing, shape=tuple(shape))
    settings = {"preprocessing": preprocessing, "seed": seed, **settings}
    return ImpressLearner.from_preset(backbone, preset, **settings)


@clear_calls
def load(
    path: str | os.PathLike,
    *,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    **settings: Any,
) -> ImpressLearner:
    """Reads a store completely into a learner in memory, and verifies every byte.

    Later changes stay in memory until `save`.

    - path: the path of the store.
    - module: if the network was adapted from your own module, a module with the same structure.
      Its weights come from the file.
    - device: the device for the network and the masks.
    - settings: settings that replace the stored ones, such as progress=False.

    Raises StoreError if the file is not a store, is damaged, or belongs to another network.
    """
    return _learner(path, settings, module=module, device=device, readonly=True, in_memory=True)


@clear_calls
def open_store(
    path: str | os.PathLike,
    *,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    readonly: bool = False,
    timeout: float = 60.0,
    **settings: Any,
) -> ImpressLearner:
    """Opens a store as a learner that works on the file: every method commits before it returns.

    Masks and tasks are read and checked when they are needed. Tasks that another process adds to
    the file appear at once. Use the learner in a `with` statement, or call `close`.

    - readonly: whether to forbid changes.
    - timeout: seconds to wait for another process's commit.
    - path, module, device, settings, errors: as in `load`.
    """
    options = {"module": module, "device": device, "readonly": readonly, "timeout": timeout}
    return _learner(path, settings, **options)


def verify_store(path: str | os.PathLike, module: nn.Module | None = None) -> dict[str, int]:
    """Reads and checks every part of a store; returns the number of tasks and of masks.

    Raises StoreError for the first part that is damaged or cannot be used.
    """
    learner = load(path, module=module, progress=False)
    for task in learner.tasks_.all():
        try:
            learner._store.coefficients(task)
        except StoreError:
            raise
        except Exception as error:  # damaged numbers may raise any error
            line = f"the numbers of task {task.name!r} in {path} are damaged: {error}"
            raise StoreDamagedError(f"{line}; restore it from a copy") from None
    return {"tasks": len(learner.tasks_), "masks": len(learner.bank_)}


def _learner(path: Any, settings: dict[str, Any], **options: Any) -> ImpressLearner:
    if "backbone" in settings:
        raise InputError("the network comes from the file; give the structure of yours as module=")
    known = {*inspect.signature(ImpressLearner).parameters, *options} - {"bank", "in_memory"}
    for name in settings:
        check_known("a learner has no setting", name, sorted(known))
    if path is None:  # which would be a new store in memory
        raise InputError("a store's path must be a string or Path, got None")
    cache_bytes = settings.get("cache_bytes", CACHE_BYTES)
    store, plain = open_file(path, cache_bytes=cache_bytes, **options)
    try:
        try:
            stored = restored_settings(plain)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise StoreError(f"the settings in {path} cannot be used: {error}") from None
        preprocessing = settings.get("preprocessing", stored["preprocessing"])
        if preprocessing != stored["preprocessing"]:
            raise InputError(
                f"the tasks of {path} were learned with the preprocessing "
                f"{stored['preprocessing']}, not {preprocessing}; pass inputs that are prepared "
                "already as Prepared(inputs)"
            )
        # The learner checks the settings. Its empty store is replaced by the file's store below.
        learner = ImpressLearner(store.backbone, **stored | settings)
    except BaseException:
        store.database.close()
        raise
    learner._store = store
    return learner
