import pytest
import torch
from torch import nn

from impresslearn.coefficients.mixing import (
    Coefficients,
    CoefficientSpec,
    mixed_weights,
    uniform_coefficients,
)
from impresslearn.inference.superposition import Superposition
from impresslearn.masks import add_random_masks, random_bank
from impresslearn.networks import adapt, create_backbone

KINDS = {
    "layer": [CoefficientSpec()] * 3,
    "unit": [CoefficientSpec("unit")] * 3,
    "layer and unit": [CoefficientSpec(), CoefficientSpec("unit")],
    "output scales": [CoefficientSpec(output_scale=True), CoefficientSpec()],
    "input scales": [CoefficientSpec(input_scale=True), CoefficientSpec("unit", True, True)],
    "everything": [
        CoefficientSpec(g, o, i) for g in ("layer", "unit") for o in (0, 1) for i in (0, 1)
    ],
}


@pytest.fixture(params=["lenet", "convolutions"])
def backbone(request):
    if request.param == "lenet":
        return create_backbone("lenet_300_100", num_classes=3, seed=0, in_features=12, widths=[5])
    network = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2), nn.Flatten(), nn.Linear(6, 3)
    )
    return adapt(network, num_classes=3)


def draw(backbone, count, spec, seed):
    generator = torch.Generator().manual_seed(seed)
    start = uniform_coefficients(backbone.layers, count, spec)
    return start.like(torch.randn(each.shape, generator=generator) for each in start.tensors())


def dense(backbone, bank, candidates, shares):
    """The weighted sum of every candidate's own weights, in float64."""
    total = {name: torch.zeros_like(w).double() for name, w in backbone.weights.items()}
    for position, coefficients in enumerate(candidates):
        mixed = mixed_weights(bank, backbone.weights, coefficients)
        for number, layer in enumerate(backbone.layers):
            share = shares[position] if shares.dim() == 1 else shares[position, number]
            total[layer.name] = total[layer.name] + share.double() * mixed[layer.name].double()
    return total


@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_gradients_are_those_of_the_dense_sum(backbone, kind, per_layer):
    bank = random_bank(backbone.layers, 6, sparsity=0.5, seed=0)
    candidates = [
        draw(backbone, 6 if seed else 4, spec, seed) for seed, spec in enumerate(KINDS[kind])
    ]
    shape = (len(candidates), len(backbone.layers)) if per_layer else (len(candidates),)
    shares = torch.randn(shape, generator=torch.Generator().manual_seed(9), requires_grad=True)
    weights = Superposition(backbone, bank, candidates).weights(shares)
    expected = dense(backbone, bank, candidates, shares)
    assert list(weights) == [layer.name for layer in backbone.layers]
    for name, weight in weights.items():
        torch.testing.assert_close(weight.double(), expected[name], rtol=1e-4, atol=1e-5)
    ours, plain = (
        torch.autograd.grad(sum(w.double().pow(2).sum() for w in each.values()), shares)[0]
        for each in (weights, expected)
    )
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_all_the_share_for_one_candidate_gives_its_weights(backbone, kind):
    bank = random_bank(backbone.layers, 5, sparsity=0.5)
    candidates = [draw(backbone, 5, spec, seed) for seed, spec in enumerate(KINDS[kind])]
    superposition = Superposition(backbone, bank, candidates)
    for position, coefficients in enumerate(candidates):
        shares = torch.zeros(len(candidates))
        shares[position] = 1
        own = mixed_weights(bank, backbone.weights, coefficients)
        for name, weight in superposition.weights(shares).items():
            torch.testing.assert_close(weight, own[name], rtol=1e-5, atol=1e-5)


def test_it_stays_the_same_as_the_bank_grows(backbone):
    bank = random_bank(backbone.layers, 5, sparsity=0.5)
    candidates = [draw(backbone, 5, spec, seed) for seed, spec in enumerate(KINDS["everything"])]
    superposition = Superposition(backbone, bank, candidates)
    shares = superposition.uniform()
    before = superposition.weights(shares)
    add_random_masks(bank, 20, sparsity=0.5)
    for name, weight in superposition.weights(shares).items():
        assert torch.equal(weight, before[name])


def test_the_backbone_and_the_candidates_are_not_changed(backbone):
    bank = random_bank(backbone.layers, 3, sparsity=0.5)
    candidates = [draw(backbone, 3, spec, seed) for seed, spec in enumerate(KINDS["everything"])]
    copies = [each.detach() for each in candidates]
    weights = {name: weight.clone() for name, weight in backbone.weights.items()}
    superposition = Superposition(backbone, bank, candidates)
    for mixed in superposition.weights(superposition.uniform()).values():
        mixed.zero_()
    assert all(torch.equal(weights[name], now) for name, now in backbone.weights.items())
    for now, then in zip(candidates, copies, strict=True):
        pairs = zip(now.tensors(), then.tensors(), strict=True)
        assert all(torch.equal(first, second) for first, second in pairs)
    assert any(w.any() for w in superposition.weights(superposition.uniform()).values())


def test_equal_shares(backbone):
    bank = random_bank(backbone.layers, 3, sparsity=0.5)
    candidates = [draw(backbone, 3, CoefficientSpec(), seed) for seed in range(4)]
    superposition = Superposition(backbone, bank, candidates)
    assert superposition.num_tasks == 4
    assert superposition.uniform().tolist() == [0.25] * 4
    assert superposition.uniform(torch.tensor([1, 3])).tolist() == [0, 0.5, 0, 0.5]
    columns = superposition.uniform(torch.tensor([2]), per_layer=True)
    assert columns.tolist() == [[0] * len(bank.layers)] * 2 + [[1] * len(bank.layers)] + [
        [0] * len(bank.layers)
    ]


def test_no_candidates_have_no_weights(backbone):
    bank = random_bank(backbone.layers, 3, sparsity=0.5)
    weights = Superposition(backbone, bank, []).weights(torch.zeros(0))
    assert not any(weight.any() for weight in weights.values())


def test_candidates_may_know_fewer_masks_than_the_bank(backbone):
    bank = random_bank(backbone.layers, 8, sparsity=0.5)
    one_hot = torch.tensor([1.0])
    candidate = Coefficients(tuple(one_hot for _ in backbone.layers))
    weights = Superposition(backbone, bank, [candidate]).weights(torch.ones(1))
    for name, mask in bank.mask(bank.names[0]).items():
        assert torch.equal(weights[name], backbone.weights[name] * mask)
