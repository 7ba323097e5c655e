"""Loads learners from stores: `load` into memory, `open_store` on the file itself."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from impresslearn.coefficients.learning import can_fold
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
    return _learner(load_state, path, settings, module=module, device=device)


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
    how = {"module": module, "device": device, "readonly": readonly, "timeout": timeout}
    return _learner(open_state, path, settings, **how)


def verify_store(path: str | os.PathLike, module: nn.Module | None = None) -> dict[str, int]:
    """Reads and checks every page, row, mask, weight and setting; how many masks and tasks.

    Raises StoreError at the first thing that is not as it was written, or that could not be used.
    """
    learner = load(path, module=module, progress=False)
    for task in learner.tasks_.all():
        learner._state.coefficients(task)
    return {"tasks": len(learner.tasks_), "masks": len(learner.bank_)}


def _learner(
    read: Callable[..., Opened], path: Any, settings: dict[str, Any], **how: Any
) -> ImpressLearner:
    known = set(inspect.signature(ImpressLearner).parameters) - {"backbone", "bank"}
    for name in sorted(settings.keys() - known):
        line = f"there is no setting {name!r} to override; there are {', '.join(sorted(known))}"
        if name == "backbone":
            line = "the network comes from the file, the structure of one of your own as module="
        raise InputError(line)
    opened = read(path, cache_bytes=settings.get("cache_bytes", CACHE_BYTES), **how)
    try:
        kept = _kept_settings(opened, path)
        own = kept["preprocessing"]
        wanted = settings.get("preprocessing", own)
        # Older stores have none: a copy in memory may be told what its tasks were learned from.
        untold = read is load_state and "preprocessing" not in opened.settings
        if wanted != own and not untold:
            raise InputError(
                f"the tasks of {path} were learned with the preprocessing {own}, not with {wanted};"
                " give inputs that are prepared otherwise as Prepared(inputs)"
            )
        learner = ImpressLearner(opened.state.backbone, **kept | settings)
    except BaseException:
        opened.state.backend.close()
        raise
    learner._state = opened.state
    return learner


def _kept_settings(opened: Opened, path: Any) -> dict[str, Any]:
    try:
        kept = restored_settings(opened.settings)
        if not can_fold(opened.state.backbone, kept["tune"]):
            kept["fold_after"] = 0.0  # older stores may have one that had no effect
        ImpressLearner(opened.state.backbone, **kept)
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError(f"the settings of a learner in {path} cannot be used: {error}") from None
    return kept
