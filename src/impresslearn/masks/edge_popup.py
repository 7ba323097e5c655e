"""Masks that are trained for one task, by edge-popup or by pruning, and the accuracy of any mask.

Edge-popup (Ramanujan et al. 2020) trains a score for each weight. A layer's mask keeps a given
number of weights, those with the highest scores. The forward pass uses W ⊙ mask. The backward pass
treats the mask as if it were the score itself (straight-through), so scores get the gradient
grad ⊙ W. If scores are ranked by "magnitude", the gradient is multiplied by their sign. The
ImpressLearn paper names pruning as another way to make masks ("Mask generation & edge-popup").
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import (
    check_choice,
    check_integer,
    check_kind,
    check_seed,
    clear_calls,
    torch_seed,
)
from impresslearn.data import Label, classes_of, to_batches
from impresslearn.errors import InputError, TrainingError
from impresslearn.masks.bank import checked_mask
from impresslearn.masks.sparsity import Allocation, ones_per_layer
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone, checked_examples, training_examples
from impresslearn.networks.layers import MaskableLayer
from impresslearn.networks.prediction import Statistics, TaskView, TrainingPhase
from impresslearn.training.loop import FitResult, Recipe, TaskTraining, Trainable, with_head
from impresslearn.training.progress import ProgressChoice, progress_for

ScoreRule = Literal["score", "magnitude"]
RULES: tuple[ScoreRule, ...] = get_args(ScoreRule)
SAMPLE_SIZE = 4096
BRACKET_HALF_WIDTH = 3.0  # in `_kth_largest`, in standard errors of a rank in its sample

# LeNet-300-100 on permuted MNIST with weights of gain 1 and the rule "score": lr 0.01 gives 93.8%,
# 0.03 95.6%, and 0.1 96.0%. The rule "magnitude" gives 96.4% with lr 0.03. With weights of gain 2,
# lr 0.03 and lr 0.1 give 97.2 to 97.5%.
POPUP_RECIPE = Recipe(optimizer="adam", lr=0.03, schedule="cosine", epochs=2, min_steps=300)
PRUNING_RECIPE = Recipe(optimizer="adam", lr=0.01, schedule="cosine", epochs=1, min_steps=300)


@dataclass(frozen=True)
class PopupScores:
    """Trainable scores for some layers of a network: edge-popup (Ramanujan et al. 2020).

    - `layers`, `ones`: the layers, and the number of ones in the mask of each layer.
    - `score_rule`: whether weights are ranked by their "score" or its "magnitude".
    - `tensors`: the scores, float32 of each layer's shape; the leaves to optimise.

    `weights` raises TrainingError for scores that became NaN.
    """

    layers: tuple[MaskableLayer, ...]
    ones: tuple[int, ...]
    score_rule: ScoreRule
    tensors: list[Tensor]

    @classmethod
    def create(
        cls,
        layers: Sequence[MaskableLayer],
        ones: Sequence[int],
        seed: int,
        score_rule: ScoreRule = "magnitude",
        device: torch.device | str = "cpu",
    ) -> "PopupScores":
        """Fresh scores ~ U(-b, b) with b = 1/sqrt(fan_in): Kaiming uniform with a = √5."""
        generator = torch.Generator().manual_seed(torch_seed(seed))
        scores = []
        for layer in layers:
            bound = 1 / math.sqrt(layer.fan_in)
            score = torch.empty(layer.shape, dtype=torch.float32)
            score.uniform_(-bound, bound, generator=generator)
            scores.append(score.to(device).requires_grad_(True))
        return cls(tuple(layers), tuple(ones), score_rule, scores)

    def weights(self, frozen: dict[str, Tensor]) -> dict[str, Tensor]:
        """Layer name -> W ⊙ mask, with straight-through gradients for the scores."""
        return {
            layer.name: Popup.apply(score, frozen[layer.name], ones, self.score_rule)
            for layer, score, ones in zip(self.layers, self.tensors, self.ones, strict=True)
        }

    def masks(self) -> dict[str, Tensor]:
        """The masks of the present scores: layer name -> booleans."""
        return {
            layer.name: top_mask(score, ones, self.score_rule)
            for layer, score, ones in zip(self.layers, self.tensors, self.ones, strict=True)
        }


@dataclass(frozen=True)
class TrainedMask:
    """The result of `train_mask`. Tensors are by layer name.

    - `mask`: booleans of the weights' shapes.
    - `scores`: the trained scores, from which the mask was made.
    - `initial`: the network's own weights.
    - `fit`: how the training ended.
    - `statistics`: norm statistics gathered in training, None if the network keeps none.
    - `head`: if every task has its own head, the one trained together with the mask; else {}.
    - `classes`: the task's classes, in the order of the outputs.
    """

    mask: dict[str, Tensor]
    scores: dict[str, Tensor]
    initial: dict[str, Tensor]
    fit: FitResult
    statistics: Statistics | None = None
    head: dict[str, Tensor] = field(default_factory=dict)
    classes: tuple[Label, ...] = ()


# inference_mode(False) turns gradients on, whatever mode the caller is in.
@torch.inference_mode(False)
@clear_calls
def train_mask(
    backbone: Backbone,
    data: Any,
    *,
    sparsity: float = 0.9,
    allocation: Allocation = "erdos_renyi",
    score_rule: ScoreRule = "magnitude",
    recipe: Recipe = POPUP_RECIPE,
    seed: int = 0,
    progress: ProgressChoice = False,
) -> TrainedMask:
    """Trains a mask for one task with edge-popup on the frozen network.

    - `data`: labelled examples, such as (X, y), in any form that a learner takes.
    - `sparsity`, `allocation`, `score_rule`, `progress`: as in `ImpressLearner`.
    - `recipe`: how scores are optimised.
    - `seed`: seed of the initial scores and the order of the data.

    Raises TrainingError if the loss is not finite.
    Source: Ramanujan et al. 2020, "What's hidden in a randomly weighted neural network?".
    """
    task, classes = training_task(backbone, data, recipe, seed, progress)
    ones = ones_per_layer(backbone.layers, sparsity, allocation)
    scores = PopupScores.create(backbone.layers, ones, task.seed, score_rule, backbone.device)
    trainable = with_head(trainable_scores(scores, backbone), backbone, task.num_classes)
    result = task.fit(trainable)
    mask, head = trainable.result()
    final = dict(zip(mask, (score.detach() for score in scores.tensors), strict=True))
    initial, statistics = dict(backbone.weights), task.phase.statistics
    return TrainedMask(mask, final, initial, result, statistics, head, classes)


def trainable_scores(scores: PopupScores, backbone: Backbone) -> Trainable:
    """A `Trainable` of popup scores, whose weights are masked and whose result is the mask."""
    return Trainable(scores.tensors, lambda: (scores.weights(backbone.weights), 0.0), scores.masks)


def training_task(
    backbone: Backbone, data: Any, recipe: Recipe, seed: int, progress: ProgressChoice
) -> tuple[TaskTraining, tuple[Label, ...]]:
    """A `TaskTraining` to train masks or weights with, and the task's sorted classes."""
    check_kind("recipe", recipe, Recipe)
    examples, classes = training_examples(check_backbone(backbone), data)
    source, phase = to_batches(examples, classes, backbone.device), TrainingPhase.begin(backbone)
    shown, seed = progress_for(progress), check_seed(seed)
    return TaskTraining(backbone, source, len(classes), recipe, phase, seed, shown), classes


@dataclass(frozen=True)
class PrunedMask:
    """The result of `prune`. Tensors are by layer name.

    A lottery ticket is the mask applied to `initial`. The pruned network is the mask applied to
    `trained`.

    - `trained`: the weights at the end of the last round, 0 where earlier rounds pruned them.
    - the other fields as in `TrainedMask`; statistics are from the last round.
    """

    mask: dict[str, Tensor]
    initial: dict[str, Tensor]
    trained: dict[str, Tensor]
    statistics: Statistics | None = None
    head: dict[str, Tensor] = field(default_factory=dict)
    classes: tuple[Label, ...] = ()


@torch.inference_mode(False)
@clear_calls
def prune(
    backbone: Backbone,
    data: Any,
    *,
    sparsity: float = 0.9,
    allocation: Allocation = "erdos_renyi",
    rounds: int = 4,
    recipe: Recipe = PRUNING_RECIPE,
    seed: int = 0,
    progress: ProgressChoice = False,
) -> PrunedMask:
    """Finds a mask for one task by iterative magnitude pruning; the network does not change.

    Each round trains the remaining weights from their initial values and keeps the same fraction
    of them, as in the search for lottery tickets (Frankle & Carbin 2019).

    - `rounds`: the number of rounds; the last round reaches `sparsity`.
    - `recipe`: how weights are trained in each round.
    - other arguments and errors: as in `train_mask`.
    """
    task, classes = training_task(backbone, data, recipe, seed, progress)
    ones = ones_per_layer(backbone.layers, sparsity, allocation)
    rounds = check_integer("rounds", rounds, 1)
    initial = {name: value.clone() for name, value in backbone.weights.items()}
    mask = {name: torch.ones_like(value, dtype=torch.bool) for name, value in initial.items()}
    trained, head = initial, dict[str, Tensor]()
    for number in range(1, rounds + 1):
        task = replace(task, phase=TrainingPhase.begin(backbone))
        trained, head = weights_under(mask, task, initial)
        for layer, count in zip(backbone.layers, ones, strict=True):
            keep = round(layer.numel * (count / layer.numel) ** (number / rounds))
            # Pruned weights rank below all remaining ones, even those that trained to zero.
            ranked = torch.where(mask[layer.name], trained[layer.name].abs(), -1.0)
            mask[layer.name] = top_mask(ranked, keep, "score")
    return PrunedMask(mask, initial, trained, task.phase.statistics, head, classes)


def weights_under(
    mask: Mapping[str, Tensor], task: TaskTraining, initial: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights trained from `initial` under the mask, 0 elsewhere, and the task's own head."""
    weights = {name: value.clone().requires_grad_(True) for name, value in initial.items()}

    def masked() -> dict[str, Tensor]:
        return {name: weight * mask[name] for name, weight in weights.items()}

    trainable = Trainable(list(weights.values()), lambda: (masked(), 0.0), masked)
    trainable = with_head(trainable, task.backbone, task.num_classes)
    task.fit(trainable)
    return trainable.result()


def accuracy(
    backbone: Backbone, masked: Any, data: Any, classes: Sequence[Label] | None = None
) -> float:
    """The accuracy in [0, 1] of the network's own weights under a mask, on a labelled task.

    - `masked`: layer name -> booleans, or a result of `train_mask` or `prune`, with its head.
    - `data`: labelled examples.
    - `classes`: the task's classes in the order of the outputs. By default they come from the
      training result; for a plain mask they are the sorted labels of the data, which must then
      have a label for each output of the network.

    Raises InputError for masks that do not fit, for a result trained on another network (pass its
    `.mask` instead), and if a head, statistics or classes are missing.
    """
    mask = checked_mask(masked, check_backbone(backbone).layers)
    origin, network = getattr(masked, "initial", backbone.weights), {}
    for name, weight in backbone.weights.items():
        if not torch.equal(origin[name].to(weight), weight):
            line = "the mask was trained on other weights (another seed or init?)"
            raise InputError(f"{line}; pass that network, or the result's .mask to use it here")
        network[name] = weight * mask[name].to(backbone.device)
    head = getattr(masked, "head", {})
    if backbone.own_head is not None and not head:
        line = "each task of this network has its own head, and a mask alone has none"
        raise InputError(f'{line}: give the result of train_mask, or a network with head="shared"')
    examples = checked_examples(backbone, data)
    known = getattr(masked, "classes", ()) if classes is None else tuple(classes)
    order = known or classes_of(examples.labels)
    if not known and len(order) < backbone.num_classes:
        line = f"the data show {len(order)} classes of {backbone.num_classes}; pass classes="
        raise InputError(f"{line} in the order of the outputs (train_mask sorts the labels)")
    # The statistics of a pruned mask belong to its trained weights, which are not used here.
    statistics = None if isinstance(masked, PrunedMask) else getattr(masked, "statistics", None)
    if backbone.has_statistics and statistics is None:
        line = "the norms of this network keep statistics, which only a result of train_mask has"
        raise InputError(f'{line}: give one, or make the network with norm="batch"')
    view = TaskView(network | head, statistics, len(order))
    return view.accuracy(backbone, to_batches(examples, order, backbone.device))


def top_mask(scores: Tensor, ones: int, score_rule: ScoreRule = "magnitude") -> Tensor:
    """The mask that keeps exactly the `ones` highest scores; booleans of the scores' shape.

    Among equal scores the earlier position wins, so that the mask is the same on every machine.

    - `score_rule`: "score" ranks the scores themselves, "magnitude" their absolute values.
    """
    return _kept(scores, ones, score_rule).bool()


class Popup(torch.autograd.Function):
    """W ⊙ mask(scores), with straight-through gradients for the scores. TrainingError for NaN."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weight: Tensor, ones: int, rule: ScoreRule) -> Tensor:
        ctx.save_for_backward(weight, scores if rule == "magnitude" else None)
        return _kept(scores, ones, rule).to(weight.dtype).mul_(weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        weight, scores = ctx.saved_tensors
        if scores is None:
            return grad * weight, None, None, None
        return scores.sign().mul_(weight).mul_(grad), None, None, None


def _kept(scores: Tensor, ones: int, score_rule: ScoreRule) -> Tensor:
    """The mask as ones and zeros in the scores' dtype: faster in a product than booleans."""
    check_choice("score_rule", score_rule, RULES)
    if not 0 <= ones <= scores.numel():
        raise InputError(f"cannot keep {ones} of {scores.numel()} weights")
    ranked = scores.detach().contiguous()
    ranked = ranked.abs() if score_rule == "magnitude" else ranked.clone()
    flat, count = ranked.view(-1), max(ones, 1)  # for 0 ones, the highest scores count as tied
    if flat.device.type == "cpu":
        wide = torch.promote_types(flat.dtype, torch.float32)  # NumPy has no bfloat16
        threshold, reached = _kth_largest(flat.to(wide).numpy(), count)
    else:
        ordered = flat.sort().values  # NaN last; `kthvalue` is slow on a GPU
        at_least = (flat >= ordered[-count]).sum() * ~ordered[-1].isnan()
        # Both numbers in one transfer, because each transfer waits for the GPU.
        threshold, counted = torch.stack([ordered[-count].double(), at_least.double()]).tolist()
        reached = int(counted)
    if not reached:  # a score is NaN
        raise TrainingError("edge-popup scores became NaN; lower the learning rate")
    if reached > ones:
        tied = (flat == threshold).nonzero().flatten()
        flat[tied[ones - reached :]] = math.nan  # the last tied scores; >= is False for NaN
    return ranked.ge_(threshold)


def _kth_largest(values: np.ndarray, count: int) -> tuple[float, int]:
    """The `count`-th largest value, and the number of values >= it; (NaN, 0) if any is NaN."""
    if math.isnan(values.max()):
        return math.nan, 0
    # Two values of an evenly spaced sample bracket the result, so that only the values between
    # them have to be partitioned: without AVX2 this is up to eight times as fast.
    sample = np.sort(values[:: max(1, values.size // SAMPLE_SIZE)])
    share = count / values.size
    spread = BRACKET_HALF_WIDTH * math.sqrt(sample.size * share * (1 - share)) + 2
    expected = sample.size * (1 - share)  # the place of the result in the sample
    low = sample[max(0, math.floor(expected - spread))]
    high = sample[min(sample.size - 1, math.ceil(expected + spread))]
    higher = values > high
    above = int(np.count_nonzero(higher))
    # `flatnonzero` is twice as fast as a boolean index.
    inside = values[np.flatnonzero((values >= low) ^ higher)]  # from low to high
    if not above < count <= above + inside.size:  # the result is not in the bracket
        above, inside = 0, values
    place = inside.size + above - count
    kth = np.partition(inside, place)[place]
    return float(kth), above + int(np.count_nonzero(inside >= kth))
