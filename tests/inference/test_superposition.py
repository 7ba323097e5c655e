import pytest
import torch
from torch import nn

from impresslearn.coefficients.masks import MaskMixture
from impresslearn.coefficients.parametrisation import Coefficients, task_weights
from impresslearn.inference import Mixture
from impresslearn.inference.superposition import Superposition
from impresslearn.masks import draw_masks, random_bank
from impresslearn.networks import adapt
from toys import lenet

KINDS = {
    "layer": [MaskMixture()] * 3,
    "layer and unit": [MaskMixture(), MaskMixture(True)],
    "output scales": [MaskMixture(output_scale=True), MaskMixture()],
}


@pytest.fixture(params=["lenet", "convolutions"])
def backbone(request):
    if request.param == "lenet":
        return lenet()
    layers = nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2), nn.Flatten()
    return adapt(nn.Sequential(*layers, nn.Linear(6, 3)), num_classes=3)


def draw(backbone, count, spec, seed):
    generator = torch.Generator().manual_seed(seed)
    layout = spec.layout(backbone, count, 0)
    values = tuple(torch.randn(tensor.shape, generator=generator) for tensor in layout)
    return Coefficients((spec,), (values,), count)


def dense(backbone, bank, tasks, shares):
    """The weighted sum of every task's own weights, in float64."""
    total = {name: torch.zeros_like(w).double() for name, w in backbone.weights.items()}
    for position, coefficients in enumerate(tasks):
        mixed = task_weights(bank, backbone, coefficients)
        for number, layer in enumerate(backbone.layers):
            share = shares[position] if shares.dim() == 1 else shares[position, number]
            total[layer.name] = total[layer.name] + share.double() * mixed[layer.name].double()
    return total


@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_gradients_are_those_of_the_dense_sum(backbone, kind, per_layer):
    """And stay so as the bank grows."""
    bank = random_bank(backbone.layers, 6, sparsity=0.5, seed=0)
    tasks = [draw(backbone, 6 if seed else 4, spec, seed) for seed, spec in enumerate(KINDS[kind])]
    shape = (len(tasks), len(backbone.layers)) if per_layer else (len(tasks),)
    shares = torch.randn(shape, generator=torch.Generator().manual_seed(9), requires_grad=True)
    mixtures = [Mixture(task.alpha, task.output_scale) for task in tasks]
    superposition = Superposition(backbone, bank, mixtures, 3)
    weights = superposition.weights(shares)
    expected = dense(backbone, bank, tasks, shares)
    assert list(weights) == [layer.name for layer in backbone.layers]
    for name, weight in weights.items():
        torch.testing.assert_close(weight.double(), expected[name], rtol=1e-4, atol=1e-5)
    ours, plain = (
        torch.autograd.grad(sum(w.double().pow(2).sum() for w in each.values()), shares)[0]
        for each in (weights, expected)
    )
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)
    for mask in draw_masks(bank, 20, sparsity=0.5):
        bank.adopt(*mask)
    for name, weight in superposition.weights(shares).items():
        assert torch.equal(weight, weights[name])
