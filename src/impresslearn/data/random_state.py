"""Saves, restores and seeds the global random generators of torch, numpy and Python.

A `Dataset` that augments draws from them while it is read, which shows in their state.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch

State = tuple[Any, ...]


def state() -> State:
    """The state of the three global generators; equal if nothing was drawn in between."""
    kind, keys, *rest = cast(Any, np.random.get_state(legacy=True))
    numbers = torch.default_generator.get_state().numpy().tobytes()
    return numbers, (kind, keys.tobytes(), *rest), random.getstate()


def restore(saved: State) -> None:
    """Puts the global generators back to a state that `state` gave."""
    numbers, (kind, keys, *rest), python = saved
    torch.default_generator.set_state(torch.frombuffer(bytearray(numbers), dtype=torch.uint8))
    np.random.set_state((kind, np.frombuffer(keys, np.uint32), *rest))
    random.setstate(python)


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Seeds the global generators for a while, then puts them back."""
    saved = state()
    try:
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        yield
    finally:
        restore(saved)
