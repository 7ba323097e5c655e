"""Many tasks of a multilayer perceptron at once, on the same inputs.

A mixed layer is linear in its coefficients: x (W ⊙ Σ_t α_t M^t)ᵀ = Σ_t α_t x (W ⊙ M^t)ᵀ. In the
first layer x is the same for all tasks, so its products under each mask are computed once, and a
task costs N numbers an output instead of a mix of all weights. Later layers are mixed for a chunk
of tasks by one matrix product. Tasks with weights of their own are run layer by layer in chunks.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import islice, pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from impresslearn.coefficients.mixing import Coefficients
from impresslearn.data import Inputs
from impresslearn.kernels import mix, unpack
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.architectures import LeNet
from impresslearn.networks.prediction import TaskView

ELEMENTWISE = (
    nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Identity
)  # fmt: skip
SHARED_BYTES = 48 * 2**20
"""Of what a request keeps for all its chunks, in each of two places."""


class Perceptron:
    """A network of linear layers in a row, run for many tasks on inputs (n, ...).

    count: how many tasks there are, by which the cheaper way is chosen.
    """

    def __init__(
        self, backbone: Backbone, bank: MaskBank, inputs: Tensor | Inputs, count: int
    ) -> None:
        assert isinstance(inputs, Tensor)
        backbone.check_inputs(inputs)
        self._backbone, self._bank, self._count = backbone, bank, count
        self._inputs = inputs.to(backbone.device, backbone.input_dtype).flatten(1)
        self._steps = _steps(backbone.module)
        linear = [step for step in self._steps.values() if isinstance(step, nn.Linear)]
        self._widest = max(max(each.in_features, each.out_features) for each in linear)
        self._numbers = {layer.name: number for number, layer in enumerate(bank.layers)}
        self._products: dict[tuple[str, bool], Tensor] = {}

    @staticmethod
    def fits(backbone: Backbone, inputs: Tensor | Inputs) -> bool:
        """Whether the network is such a row, of float32 weights, and takes these inputs."""
        module = backbone.module
        if type(module) not in (nn.Sequential, LeNet) or backbone.own_head is not None:
            return False
        steps = list(_steps(module).values())
        linear = [step for step in steps if type(step) is nn.Linear]
        known = all(type(step) in ELEMENTWISE or type(step) is nn.Linear for step in steps)
        if not (linear and known):
            return False
        hooked = (each._forward_hooks or each._forward_pre_hooks for each in (module, *steps))
        plain = not any(hooked) and type(steps[0]) is nn.Linear  # others may change the inputs
        wide = isinstance(inputs, Tensor) and inputs[:1].numel() == (
            linear[0].in_features if linear else 0
        )
        flat = backbone.input_shape is not None and len(backbone.input_shape) == 1
        parameters = [each for _, each in module.named_parameters(remove_duplicate=False)]
        apart = len(set(map(id, parameters))) == len(parameters)
        in_row = all(first.out_features == then.in_features for first, then in pairwise(linear))
        dtypes = (backbone.dtype, backbone.input_dtype) == (torch.float32,) * 2
        return plain and wide and flat and apart and in_row and dtypes

    @staticmethod
    def takes(coefficients: Coefficients) -> bool:
        """Whether a task is a mix of masks, perhaps with a scale for each output."""
        given = (coefficients.input_scale, coefficients.small, coefficients.weights)
        return bool(coefficients.alpha) and all(each is None for each in given)

    def kind(self, task: Coefficients | TaskView) -> tuple[Hashable, ...]:
        """What all tasks of a chunk have in common."""
        if isinstance(task, TaskView):
            return ()
        scaled, by_unit = task.output_scale is not None, task.granularity == "unit"
        return task.residual, scaled, by_unit, task.num_masks

    def bytes_of(self, task: Coefficients | TaskView) -> int:
        """What a task of a chunk takes while it waits and is run."""
        held = 3 * len(self._inputs) * self._widest
        if isinstance(task, TaskView):
            return 4 * (held + sum(weight.numel() for weight in task.weights.values()))
        layers = self._bank.layers
        by_unit, summed = task.granularity == "unit", self._summed(layers[0].name, task.num_masks)
        held += 2 * task.num_masks * sum(layer.units if by_unit else 1 for layer in layers)
        return 4 * (held + 2 * sum(layer.numel for layer in layers[1 if summed else 0 :]))

    @torch.no_grad()
    def logits(self, tasks: Sequence[Coefficients | TaskView]) -> Tensor:
        """(C, n, outputs) of tasks of one kind."""
        mixtures = [each for each in tasks if isinstance(each, Coefficients)]
        views = [each for each in tasks if isinstance(each, TaskView)]
        found = self._mixed(mixtures) if mixtures else self._by_weights(views)
        return found if found.dim() == 3 else found.expand(len(tasks), -1, -1)

    def _mixed(self, tasks: Sequence[Coefficients]) -> Tensor:
        """(C, n, outputs), or (n, outputs) where no layer is mixed, of tasks of one kind."""
        hidden = self._inputs
        for name, step in self._steps.items():
            if not isinstance(step, nn.Linear):
                hidden = step(hidden)
                continue
            if name not in self._numbers:
                hidden = F.linear(hidden, step.weight, step.bias)
                continue
            number = self._numbers[name]
            alphas = pad_sequence([each.alpha[number] for each in tasks], batch_first=True)
            hidden = self._layer(name, hidden, alphas, tasks[0].residual)
            if tasks[0].output_scale is not None:
                scales = [each.output_scale[number] for each in tasks if each.output_scale]
                hidden = hidden * torch.stack(scales)[:, None]
            if step.bias is not None:
                hidden = hidden + step.bias
        return hidden

    def _by_weights(self, tasks: Sequence[TaskView]) -> Tensor:
        """(C, n, outputs) of tasks that are run by their own weights."""
        hidden = self._inputs.expand(len(tasks), *self._inputs.shape)
        for name, step in self._steps.items():
            if not isinstance(step, nn.Linear):
                hidden = step(hidden)
                continue
            bias = name.removesuffix("weight") + "bias"
            own = [
                (t.weights.get(name, step.weight), t.weights.get(bias, step.bias)) for t in tasks
            ]
            pairs = zip(hidden, own, strict=True)
            hidden = torch.stack([F.linear(inputs, *each) for inputs, each in pairs])
        return hidden

    def _layer(self, name: str, inputs: Tensor, alphas: Tensor, residual: bool) -> Tensor:
        """(C, n, units) of inputs (n, f), or (C, n, f), by alphas (C, N) or (C, N, units)."""
        frozen, depth = self._backbone.weights[name], alphas.shape[1]
        if self._summed(name, depth):
            found = _combined(alphas, self._shared(name, depth)).transpose(1, 2)
            return found + F.linear(inputs, frozen) if residual else found
        if depth * frozen.numel() * 4 <= SHARED_BYTES / len(self._numbers):
            weights = _combined(alphas, self._shared(name, depth))
        else:
            bits = self._bank.bits(self._numbers[name], depth)
            weights = torch.stack([mix(bits, alpha, frozen) for alpha in alphas])
        if residual:
            weights = weights + frozen
        return torch.matmul(inputs, weights.transpose(1, 2))

    def _summed(self, name: str, depth: int) -> bool:
        """Whether the layer's outputs under each mask are computed once, and combined."""
        first = self._bank.layers[0]
        size = 4 * depth * len(self._inputs) * first.units
        return name == first.name and depth <= self._count and size <= SHARED_BYTES

    def _shared(self, name: str, depth: int) -> Tensor:
        """Of each mask: W ⊙ M, (N, units, fan_in), or, summed, x (W ⊙ M)ᵀ as (N, units, n)."""
        summed = self._summed(name, depth)
        kept = self._products.get((name, summed))
        if kept is None or len(kept) < depth:
            bits, frozen = self._bank.bits(self._numbers[name], depth), self._backbone.weights[name]
            if summed:
                inputs, ones = self._inputs, torch.ones(1, device=frozen.device)
                for step in islice(self._steps.values(), list(self._steps).index(name)):
                    inputs = step(inputs)
                made = [mix(each[None], ones, frozen) @ inputs.t() for each in bits]
            else:
                made = [unpack(each, frozen.shape[1]) * frozen for each in bits]
            kept = self._products[name, summed] = torch.stack(made)
        return kept[:depth]


def _steps(module: nn.Module) -> dict[str, nn.Module]:
    """The modules of a row in order, by the names that weights of theirs would have."""
    return {f"{name}.weight": step for name, step in module._modules.items() if step is not None}


def _combined(alphas: Tensor, products: Tensor) -> Tensor:
    """Σ_t α_ct P_t: alphas (C, N) or (C, N, units), products (N, units, k), to (C, units, k)."""
    if alphas.dim() == 2:
        return (alphas @ products.flatten(1)).unflatten(1, products.shape[1:])
    by_unit = torch.bmm(alphas.permute(2, 0, 1), products.transpose(0, 1))
    return by_unit.transpose(0, 1)
