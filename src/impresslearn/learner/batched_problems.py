"""Several optimisations over one network as one: their data side by side, their weights stacked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from impresslearn.data import TensorBatches

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Problem:
    """One of many optimisations over the same network.

    parameters: what it changes; weights: the effective weights they make, and what they cost beside
    the mean cross-entropy; source, seed: its data and their order; result: what it found.
    """

    parameters: list[Tensor]
    weights: Callable[[], tuple[Weights, Tensor | float]]
    source: TensorBatches
    seed: int
    result: Callable[[], Any]


class SideBySide:
    """Several sources of one size as one: batches (b, K, ...) and (b, K), each in its own order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._sources = [problem.source for problem in problems]
        self._generators = [torch.Generator().manual_seed(each.seed) for each in problems]

    def __len__(self) -> int:
        return len(self._sources[0])

    def batches(
        self, batch_size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches in the orders of the sources' own seeds; `generator` is not used."""
        own = [
            source.batches(batch_size, each)
            for source, each in zip(self._sources, self._generators, strict=True)
        ]
        for parts in zip(*own, strict=True):
            yield tuple(torch.stack(each, dim=1) for each in zip(*parts, strict=True))  # type: ignore[misc]


def stacked(weights: Sequence[Weights]) -> Weights:
    """K networks' weights as one tensor (K, ...) a layer."""
    return {name: torch.stack([each[name] for each in weights]) for name in weights[0]}
