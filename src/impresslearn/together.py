"""Many independent optimisations side by side: K tasks, or K masks, in one loop.

Every problem keeps its own numbers, its own order of the data (its own seed) and its own share of
one summed loss, so the results are those of K separate runs up to rounding. One batched forward
pass serves them all: faster where K small networks leave a device idle (a GPU), slower on a CPU,
where dense batched products lose to one network after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from impresslearn.backbones import Backbone
from impresslearn.bank import MaskBank
from impresslearn.data import Examples, TensorBatches
from impresslearn.intake import TrainingData
from impresslearn.mixing import Coefficients, CoefficientSpec, mixed_weights
from impresslearn.objectives import cross_entropy, unit_norm_penalty
from impresslearn.progress import Progress, silent
from impresslearn.sources import PopupScores
from impresslearn.training import Recipe, fit
from impresslearn.unknowns import price_of_bits, unknowns


class SideBySide:
    """Several sources of one size as one: batches (K, b, ...) and (K, b), each in its own order."""

    def __init__(self, sources: Sequence[TensorBatches], seeds: Sequence[int]) -> None:
        self._sources = sources
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

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
            yield torch.stack([inputs for inputs, _ in parts]), torch.stack([t for _, t in parts])


def can_run_together(backbone: Backbone) -> bool:
    """Whether a batched pass means the same: no running statistics to gather, no dropout."""
    return not backbone.has_statistics and not any(
        isinstance(module, nn.modules.dropout._DropoutNd) for module in backbone.module.modules()
    )


def side_by_side(backbone: Backbone, batched: bool | None) -> bool:
    """Whether to run together where that is possible: as asked for, by default on a GPU only."""
    wanted = backbone.device.type == "cuda" if batched is None else batched
    return wanted and can_run_together(backbone)


def alike(prepared: Mapping[str, TrainingData]) -> list[list[str]]:
    """Names in groups of the same number of examples and classes, held in memory; others alone."""
    groups: dict[object, list[str]] = {}
    for name, (examples, classes) in prepared.items():
        held = isinstance(examples, Examples) and (len(examples), len(classes))
        groups.setdefault(held or name, []).append(name)
    return list(groups.values())


def learn_coefficients_together(
    backbone: Backbone,
    bank: MaskBank,
    sources: Sequence[TensorBatches],
    num_classes: int,
    spec: CoefficientSpec | None,
    recipe: Recipe,
    penalty: float,
    seeds: Sequence[int],
    progress: Progress = silent,
) -> list[Coefficients]:
    """What `learn_coefficients` gives for each source, up to rounding; sources of one length."""
    many = [unknowns(bank, backbone.weights, spec) for _ in sources]
    parameters = [tensor for each in many for tensor in each.parameters]

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        coefficients = [each.coefficients() for each in many]
        weights = [mixed_weights(bank, backbone.weights, each) for each in coefficients]
        total = _summed_loss(
            backbone, weights, inputs, targets, num_classes, recipe.label_smoothing
        )
        total = total + sum(price_of_bits(each, spec, len(sources[0])) for each in many)
        if penalty:
            total = total + penalty * sum(unit_norm_penalty(each.alpha) for each in coefficients)
        return total

    fit(parameters, loss, SideBySide(sources, seeds), recipe, seeds[0], progress)
    return [each.result() for each in many]


def train_masks_together(
    backbone: Backbone,
    source: TensorBatches,
    num_classes: int,
    ones: Sequence[int],
    recipe: Recipe,
    seeds: Sequence[int],
    rule: str,
    progress: Progress = silent,
) -> list[dict[str, Tensor]]:
    """The masks that `train_mask` gives for each seed, up to rounding near the threshold."""
    many = [
        PopupScores.create(backbone.layers, ones, seed, rule, backbone.device) for seed in seeds
    ]

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        weights = [scores.weights(backbone.weights) for scores in many]
        return _summed_loss(backbone, weights, inputs, targets, num_classes, recipe.label_smoothing)

    parameters = [tensor for scores in many for tensor in scores.tensors]
    both = SideBySide([source] * len(seeds), seeds)
    fit(parameters, loss, both, recipe, seeds[0], progress)
    return [scores.masks() for scores in many]


def _summed_loss(
    backbone: Backbone,
    weights: Sequence[dict[str, Tensor]],
    inputs: Tensor,
    targets: Tensor,
    num_classes: int,
    smoothing: float,
) -> Tensor:
    """The sum over K networks of their mean cross-entropy; inputs (K, b, ...), targets (K, b)."""
    stacked = {name: torch.stack([each[name] for each in weights]) for name in weights[0]}

    def logits(own: dict[str, Tensor], batch: Tensor) -> Tensor:
        return backbone.forward(own, batch, None, "train")[:, :num_classes]

    predicted = torch.vmap(logits)(stacked, inputs)
    return cross_entropy(predicted.flatten(0, 1), targets.flatten(), smoothing) * len(weights)
