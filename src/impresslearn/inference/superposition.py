"""Superposition: the weighted sum Σ_c β_c W_c of many tasks' weights, and two searches in it.

The factor β_c is the *share* of task c. A weighted sum of mixtures is again a mixture of the same
masks. So one mix computes its weights, and one backward pass the derivative by the share of every
task, for any number of tasks. `one_shot` takes the task of the most negative derivative at equal
shares (Wortsman et al. 2020, "Supermasks in Superposition"). `alpha` optimises the shares of each
layer (the ImpressLearn paper).
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.data import Inputs, TensorBatches
from impresslearn.inference.exhaustive import coefficients_of
from impresslearn.kernels import mix_layers
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone, Mode
from impresslearn.networks.inputs import spread_rows
from impresslearn.networks.prediction import Statistics, TaskView
from impresslearn.training.loop import Recipe, fit, unit_norm_penalty

LogitsLoss = Callable[[Tensor], Tensor]  # a loss of logits (n, num_classes)


class Superposition:
    """The weighted sum of tasks' weights, differentiable in the tasks' shares of every layer.

    - backbone, bank: the network and its masks.
    - tasks: for each task, a mixture of masks without residual, or layer name -> weights.
    - num_classes: the largest number of classes of a task.
    - shared: norm statistics that all tasks share, or None.
    """

    def __init__(
        self,
        backbone: Backbone,
        bank: MaskBank,
        tasks: Sequence[Coefficients | Mapping[str, Tensor]],
        num_classes: int,
        shared: Statistics | None = None,
    ) -> None:
        self.backbone, self.bank, self.num_tasks = backbone, bank, len(tasks)
        self.num_classes, self.shared = num_classes, shared
        mixtures = {n: task for n, task in enumerate(tasks) if isinstance(task, Coefficients)}
        self._dense = {n: task for n, task in enumerate(tasks) if isinstance(task, Mapping)}
        self._mixed, self._alphas = list(mixtures), list[Tensor]()
        for place, layer in enumerate(bank.layers if mixtures else ()):
            # Only the masks of these tasks: the bank may have grown since they were learned.
            depth = max(len(mixture.alpha[place]) for mixture in mixtures.values())
            weights = backbone.weights[layer.name]
            self._alphas.append(coefficients_of(list(mixtures.values()), place, depth, weights))

    def weights(self, shares: Tensor) -> dict[str, Tensor]:
        """Layer name -> Σ_c β_c W_c, for shares (C, layers)."""
        layers = self.bank.layers
        frozen = [self.backbone.weights[layer.name] for layer in layers]
        if self._mixed:
            # Indexing takes a tenth of a gradient's time, so skip it if all tasks are mixtures.
            of_mixtures = shares[self._mixed] if self._dense else shares
            alphas, bits = [], []
            for number, stack in enumerate(self._alphas):
                alphas.append(torch.tensordot(of_mixtures[:, number], stack, dims=1))
                bits.append(self.bank.bits(number, len(alphas[-1])))
            total = list(mix_layers(bits, alphas, frozen))
        else:
            total = [torch.zeros_like(weights) for weights in frozen]
        for position, dense in self._dense.items():
            for number, layer in enumerate(layers):
                total[number] = total[number] + shares[position, number] * dense[layer.name]
        return {layer.name: weights for layer, weights in zip(layers, total, strict=True)}

    def uniform(self) -> Tensor:
        """Equal shares (C, layers) of all tasks, which require gradients."""
        shape, device = (self.num_tasks, len(self.bank.layers)), self.backbone.device
        shares = torch.full(shape, 1 / self.num_tasks, dtype=torch.float32, device=device)
        return shares.requires_grad_(True)

    def view(self, shares: Tensor) -> TaskView:
        """The superposed network, ready to compute."""
        # The running statistics of several tasks cannot be added up, so use those of the batch.
        mode: Mode = "batch" if self.backbone.has_task_statistics else "eval"
        return TaskView(self.weights(shares), self.shared, self.num_classes, mode)

    def _logits(self, shares: Tensor, inputs: Tensor | Inputs) -> Tensor:
        view, inputs = self.view(shares), inputs.to(self.backbone.device, self.backbone.input_dtype)
        logits = self.backbone.forward(view.weights, inputs, self.shared, view.mode)
        return logits[:, : self.num_classes]

    def one_shot(self, inputs: Tensor | Inputs, objective: LogitsLoss) -> Tensor:
        """(C,): the derivative of the objective by each task's share, at equal shares."""
        shares = self.uniform()
        logits = self._logits(shares, spread_rows(inputs, 512))  # enough for one gradient
        return torch.autograd.grad(objective(logits), shares)[0].sum(dim=1)

    def alpha(
        self,
        inputs: Tensor | Inputs,
        objective: LogitsLoss,
        recipe: Recipe,
        penalty: float,
        seed: int,
    ) -> tuple[TaskView, list[int]]:
        """The network with optimised shares, and the positions of tasks, largest share first."""
        shares = self.uniform()
        no_labels = torch.zeros(len(inputs), dtype=torch.long, device=shares.device)

        def loss(batch: Tensor | Inputs, _: Tensor) -> Tensor:
            value = objective(self._logits(shares, batch))
            if penalty:
                value = value + penalty * unit_norm_penalty(list(shares.unbind(dim=1)))
            return value

        fit([shares], loss, TensorBatches(inputs.to(shares.device), no_labels), recipe, seed)
        final = shares.detach()
        return self.view(final), final.abs().mean(dim=1).argsort(descending=True).tolist()
