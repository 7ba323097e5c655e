"""Learners from stores: `load` into memory, `open_store` on the file itself."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from impresslearn.checks import check_known, clear_calls
from impresslearn.errors import InputError, StoreDamagedError, StoreError
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.settings import restored_settings
from impresslearn.store import CACHE_BYTES, Store, load_file, open_file


@clear_calls
def load(
    path: str | os.PathLike,
    *,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    **settings: Any,
) -> ImpressLearner:
    """A learner in memory with everything that a store holds; every byte is verified.

    What it learns afterwards stays in memory until `save`.

    - path: of the store.
    - module: the structure of a network that was adapted from your own module; its weights come
      from the file.
    - device: where the network and the masks go.
    - settings: override the learner's, such as progress=False.

    Raises StoreError if the file is not a store, is damaged, or belongs to another network.
    """
    return _learner(load_file, path, settings, module=module, device=device)


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
    """A learner that works on the file: each verb commits its result before it returns.

    Masks and tasks are read and checked when they are needed, and tasks that another process
    learns into the file appear at once. Use it in a `with` statement, or call `close`.

    - readonly: refuse to learn.
    - timeout: seconds to wait for another process's commit.
    - path, module, device, settings: as in `load`. Raises as `load` does.
    """
    options = {"module": module, "device": device, "readonly": readonly, "timeout": timeout}
    return _learner(open_file, path, settings, **options)


def verify_store(path: str | os.PathLike, module: nn.Module | None = None) -> dict[str, int]:
    """Reads and checks every part of a store; returns the numbers of tasks and masks.

    Raises StoreError for the first part that is damaged or cannot be used.
    """
    learner = load(path, module=module, progress=False)
    for task in learner.tasks_.all():
        try:
            learner._store.coefficients(task)
        except StoreError:
            raise
        except Exception as error:  # numbers that no code of ours wrote may raise anything
            line = f"the numbers of task {task.name!r} in {path} are damaged: {error}"
            raise StoreDamagedError(f"{line}; restore it from a copy") from None
    return {"tasks": len(learner.tasks_), "masks": len(learner.bank_)}


def _learner(
    read: Callable[..., tuple[Store, dict[str, Any]]],
    path: Any,
    settings: dict[str, Any],
    **options: Any,
) -> ImpressLearner:
    if "backbone" in settings:
        raise InputError("the network comes from the file; give the structure of yours as module=")
    known = sorted({*inspect.signature(ImpressLearner).parameters, *options} - {"bank"})
    for name in settings:
        check_known("a learner has no setting", name, known)
    store, plain = read(path, cache_bytes=settings.get("cache_bytes", CACHE_BYTES), **options)
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
        # Made with an empty store, to check the settings; the file's takes its place below.
        learner = ImpressLearner(store.backbone, **stored | settings)
    except BaseException:
        store.close()
        raise
    learner._store = store
    return learner
