"""The logits of many tasks on the same inputs, with shared computations done once.

Mixtures of masks run together only in the library's own `lenet_300_100` and `linear` in float32,
and only if there are not fewer tasks than masks. A mixed layer is linear in its coefficients:
x (W ⊙ Σ_t α_t M^t)ᵀ = Σ_t α_t x (W ⊙ M^t)ᵀ. In the first layer x is the same for all tasks, so x is
multiplied once per mask, and each task adds up N products per output. A later layer is mixed for a
chunk of tasks by one matrix product. For LeNet-300-100, 20 masks, 8 inputs and one thread, 1,000
tasks take 0.13 s; one after another they take 2.1 s.

In all other cases tasks run one after another. Tasks with only a head read the same features, which
are computed once. A task is loaded when its turn comes, so memory does not grow with their number.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.data import Features, Inputs, inputs_behind
from impresslearn.errors import StoppedError
from impresslearn.inference.feature_scores import FeatureProfile
from impresslearn.inference.unknown import TaskProfile
from impresslearn.kernels import mix
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.architectures import LeNet
from impresslearn.networks.prediction import TaskView, finite

CHUNK_BYTES = 32 * 2**20  # memory limit for tasks that run together
MAX_CHUNK = 512
stopping: ContextVar[Callable[[], bool]] = ContextVar("stopping", default=lambda: False)
"""Whether the client of a server has gone. Checked after each task."""
PRODUCT_BYTES = 256 * 2**20  # memory limit for the products of all masks


@dataclass(frozen=True)
class KnownTask:
    """A task that inputs may belong to; its numbers are loaded only when they are needed.

    - name, num_classes: of the task.
    - view: function that returns the task ready to compute.
    - profile: describes the task's own inputs; None if nothing is known about them.
    - mixture: for a task that is only a mixture of masks, function that returns its coefficients.
    """

    name: str
    num_classes: int
    view: Callable[[], TaskView]
    profile: TaskProfile | FeatureProfile | None
    mixture: Callable[[], Coefficients] | None = None


class Outputs(NamedTuple):
    """The logits (C, n, K) of C tasks, the tasks, and their positions among all tasks."""

    positions: Sequence[int]
    tasks: Sequence[KnownTask]
    logits: Tensor


@torch.no_grad()
def outputs_of_tasks(
    backbone: Backbone,
    bank: MaskBank,
    tasks: Collection[KnownTask],
    inputs: Tensor | Inputs,
    features: Features | None = None,
) -> Iterator[Outputs]:
    """The logits of all tasks, in chunks of tasks with equal numbers of classes, in any order.

    - features: the inputs with features of the frozen network, if these are computed already.

    The logits equal those of each task's view up to rounding. Raises InputError for logits that
    are not finite, and StoppedError if `stopping` returns True.
    """
    if not isinstance(inputs, Features):
        backbone.check_inputs(inputs)
    perceptron = Perceptron.of(backbone, bank, inputs, len(tasks))
    seen: dict[Hashable, Tensor | Inputs] = {}
    # Tasks that run together, by number of classes. Other tasks are chunks of one.
    by_classes: dict[int, list[tuple[int, KnownTask]]] = {}
    for position, task in enumerate(tasks):
        if perceptron is None or task.mixture is None:
            view = task.view()
            keys = view.feature_keys
            if keys is not None and keys not in seen:
                seen[keys] = with_features(backbone, view, inputs, features)
            logits = view.outputs(backbone, seen.get(keys, inputs_behind(inputs)))
            yield _wanted([position], [task], logits[None])
        else:
            by_classes.setdefault(task.num_classes, []).append((position, task))
    if perceptron is None:
        return
    for num_classes, members in by_classes.items():
        for start in range(0, len(members), perceptron.chunk):
            positions, chunk = zip(*members[start : start + perceptron.chunk], strict=True)
            logits = perceptron.logits([task.mixture() for task in chunk if task.mixture])
            yield _wanted(positions, chunk, logits[:, :, :num_classes])


def check_wanted() -> None:
    """Raises StoppedError if `stopping` returns True."""
    if stopping.get()():
        raise StoppedError("the answer is no longer wanted")


def _wanted(positions: Sequence[int], tasks: Sequence[KnownTask], logits: Tensor) -> Outputs:
    check_wanted()
    return Outputs(positions, tasks, finite(logits))


def with_features(
    backbone: Backbone, view: TaskView, inputs: Tensor | Inputs, features: Features | None
) -> Tensor | Inputs:
    """The inputs with the features that this task and others read, if its logits allow that."""
    if isinstance(inputs, Features):
        return inputs if view.reads(inputs) else inputs.inputs
    if features is None or not view.reads(features):
        values = view.features(backbone, inputs)
        features = Features(values, inputs, backbone.identity, view.feature_keys or (), {})
    # If the logits differ, the network changes the output of the head, so features cannot be used.
    logits = view.outputs(backbone, inputs)
    agrees = torch.allclose(view.outputs(backbone, features), logits, rtol=1e-3, atol=1e-4)
    return features if agrees else inputs


class Perceptron:
    """A LeNet that runs many mixtures on the same inputs (n, ...).

    - numbers: how many values each mask's products have; each task of a chunk needs this many too.
    - chunk: the number of tasks to run together.
    """

    def __init__(self, backbone: Backbone, bank: MaskBank, inputs: Tensor, numbers: int) -> None:
        self.chunk = max(1, min(MAX_CHUNK, CHUNK_BYTES // (4 * numbers)))
        flat = inputs.to(backbone.device, backbone.input_dtype).flatten(1)
        one = torch.ones(1, dtype=torch.float32, device=backbone.device)
        self._products: list[Tensor] = []
        self._biases: list[Tensor | None] = []
        for place, layer in enumerate(bank.layers):
            frozen = backbone.weights[layer.name]
            products = [mix(bits[None], one, frozen) for bits in bank.bits(place)]
            # The network's own weights come last, because residual tasks use them too.
            products.append(frozen)
            if place == 0:
                products = [weights @ flat.t() for weights in products]
            self._products.append(torch.stack(products))
            name = layer.name.removesuffix("weight") + "bias"
            self._biases.append(dict(backbone.module.named_parameters()).get(name))

    @classmethod
    def of(
        cls, backbone: Backbone, bank: MaskBank, inputs: Tensor | Inputs, count: int
    ) -> "Perceptron | None":
        """None for other networks, and if sharing is not faster for this number of tasks."""
        # A user's module may have hooks, tied layers or steps that change inputs in place.
        if type(backbone.module) is not LeNet or backbone.spec is None:
            return None
        if backbone.own_head or backbone.dtype != torch.float32 or not isinstance(inputs, Tensor):
            return None
        first, *later = bank.layers
        numbers = first.units * len(inputs) + sum(layer.numel for layer in later)
        fits = 4 * (len(bank) + 1) * numbers <= PRODUCT_BYTES
        return cls(backbone, bank, inputs, numbers) if fits and 0 < len(bank) <= count else None

    def logits(self, tasks: Sequence[Coefficients]) -> Tensor:
        """The logits (C, n, outputs) of C tasks."""
        hidden = torch.empty(0)
        for place, products in enumerate(self._products):
            alphas = coefficients_of(tasks, place, len(products), products[0])
            if alphas.dim() == 2:
                mixed = (alphas @ products.flatten(1)).unflatten(1, products.shape[1:])
            else:  # Σ_t α_ctu P_tuk, a matrix product for each unit u
                mixed = torch.bmm(alphas.permute(2, 0, 1), products.transpose(0, 1)).transpose(0, 1)
            outputs = mixed.transpose(1, 2)
            hidden = outputs if place == 0 else hidden.relu() @ outputs
            if self._biases[place] is not None:
                hidden = hidden + self._biases[place]
        return hidden


def coefficients_of(
    tasks: Sequence[Coefficients], place: int, depth: int, weights: Tensor
) -> Tensor:
    """One layer's coefficients of C tasks: (C, depth), or (C, depth, units) if any is per unit.

    They are 0 for masks that a task does not have. The last one is 1 for a residual task.

    - weights: (units, ...), the weights of the layer.
    """
    by_unit = any(task.alpha[place].dim() == 2 or task.output_scale for task in tasks)
    shape = (len(tasks), depth, len(weights)) if by_unit else (len(tasks), depth)
    coefficients = torch.zeros(shape, dtype=torch.float32, device=weights.device)
    for row, task in zip(coefficients, tasks, strict=True):
        alpha = task.alpha[place]
        row[: len(alpha)] = alpha[:, None] if by_unit and alpha.dim() == 1 else alpha
        if task.residual:
            row[-1] = 1
        if task.output_scale is not None:
            row *= task.output_scale[place]
    return coefficients
