"""Loads learners from stores: `load` into memory, `open_store` on the file itself."""

from __future__ import annotations

import inspect
import os
from typing import Any

import torch
from torch import nn

from impresslearn.errors import InputError, StoreError
from impresslearn.learner.learner import ImpressLearner
from impresslearn.state.settings import restored_settings
from impresslearn.store import CACHE_BYTES, Opened, load_state, open_state


def load(
    path: str | os.PathLike,
    *,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    **settings: Any,
) -> ImpressLearner:
    """A learner with everything that a store holds, in memory; every byte is verified.

    What it learns afterwards stays in memory until `save`. module: the structure of a network
    that was adapted from a module of your own (its weights come from the file). settings: override
    the learner's, such as progress=False. Raises StoreError for a file that is no store, is
    damaged, or belongs to another network.
    """
    _check_settings(settings)
    cache = settings.get("cache_bytes", CACHE_BYTES)
    loaded = load_state(path, module=module, device=device, cache_bytes=cache)
    return _learner(loaded, settings, path, in_memory=True)


def open_store(
    path: str | os.PathLike,
    *,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    readonly: bool = False,
    timeout: float = 60.0,
    **settings: Any,
) -> ImpressLearner:
    """A learner that works on the file: what it learns is committed before the call returns.

    Opening reads neither masks nor tasks; they are read, and checked, when they are needed. Tasks
    that another process learns into the same file are there at once. Use it in a `with` statement,
    or call `close`. readonly: learning is refused; timeout: seconds to wait for another process's
    commit. Otherwise as `load`.
    """
    _check_settings(settings)
    opened = open_state(
        path,
        module=module,
        device=device,
        readonly=readonly,
        timeout=timeout,
        cache_bytes=settings.get("cache_bytes", CACHE_BYTES),
    )
    try:
        return _learner(opened, settings, path, in_memory=False)
    except BaseException:
        opened.state.backend.close()
        raise


def verify_store(path: str | os.PathLike, module: nn.Module | None = None) -> dict[str, int]:
    """Reads and checks every page, row, mask, weight and setting; how many masks and tasks.

    Raises StoreError at the first thing that is not as it was written, or that could not be used.
    """
    learner = load(path, module=module, progress=False)
    for task in learner.tasks_.all():
        learner._state.coefficients(task)
    return {"tasks": len(learner.tasks_), "masks": len(learner.bank_)}


def _learner(
    opened: Opened, settings: dict[str, Any], path: Any, in_memory: bool
) -> ImpressLearner:
    backbone = opened.state.backbone
    try:
        kept = restored_settings(opened.settings)
        ImpressLearner(backbone, **kept)
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError(f"the settings of a learner in {path} cannot be used: {error}") from None
    own = kept["preprocessing"]
    wanted = settings.get("preprocessing", own)
    # Older stores have none: what their tasks were learned from may be said for a copy in memory.
    if wanted != own and not (in_memory and "preprocessing" not in opened.settings):
        raise InputError(
            f"the tasks of {path} were learned with the preprocessing {own}, not with {wanted}; "
            "give inputs that are prepared otherwise as Prepared(inputs)"
        )
    learner = ImpressLearner(backbone, **kept | settings)
    learner._bind(opened.state)
    return learner


def _check_settings(settings: dict[str, Any]) -> None:
    known = set(inspect.signature(ImpressLearner).parameters) - {"backbone", "bank"}
    odd = sorted(set(settings) - known)
    if odd:
        raise InputError(
            f"there is no setting {odd[0]!r} to override; there are {', '.join(sorted(known))}"
        )
