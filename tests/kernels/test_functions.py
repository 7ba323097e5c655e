"""All layers at once, and `torch.func` transforms over tasks."""

import pytest
import torch
from torch.func import grad, vjp, vmap

from impresslearn.kernels import mask_sums, mix, mix_layers, pack, reference
from impresslearn.masks import random_bank
from impresslearn.networks import create_backbone


@pytest.fixture(params=[False, True], ids=["layer", "unit"])
def drawn(request):
    """Packed masks, the coefficients of four tasks, and weights."""
    generator = torch.Generator().manual_seed(1)
    bits = pack(torch.rand((6, 5, 19), generator=generator) < 0.4)
    alphas = torch.randn((4, 6, 5) if request.param else (4, 6), generator=generator)
    return bits, alphas, torch.randn((5, 19), generator=generator)


def test_vmap_over_tasks_equals_task_by_task(drawn):
    bits, alphas, weight = drawn

    def loss(alpha):
        return mix(bits, alpha, weight).sin().sum()

    mixed = vmap(lambda alpha: mix(bits, alpha, weight))(alphas)
    for alpha, one, gradient in zip(alphas, mixed, vmap(grad(loss))(alphas), strict=True):
        assert torch.equal(one, reference.mix(bits, alpha, weight))
        alpha = alpha.clone().requires_grad_()
        torch.testing.assert_close(gradient, *torch.autograd.grad(loss(alpha), alpha))


def test_many_gradients_through_one_graph_that_are_not_differentiated_again(drawn):
    bits, alphas, weight = drawn
    grads = torch.randn(3, *weight.shape)
    _, pull = vjp(lambda alpha: mix(bits, alpha, weight), alphas[0])
    with torch.no_grad():
        (at_once,) = vmap(pull)(grads)
    apart = [mask_sums(bits, each, weight, alphas.dim() == 3) for each in grads]
    torch.testing.assert_close(at_once, torch.stack(apart))


def test_second_derivative_under_torch_func(drawn):
    bits, alphas, weight = drawn

    def cubed(alpha):
        return (mix(bits, alpha, weight) ** 3).sum()

    second = grad(lambda alpha: grad(cubed)(alpha).sum())(alphas[0])
    alpha = alphas[0].clone().requires_grad_()
    (first,) = torch.autograd.grad(cubed(alpha), alpha, create_graph=True)
    (expected,) = torch.autograd.grad(first.sum(), alpha)
    torch.testing.assert_close(second, expected, rtol=1e-4, atol=1e-4)


def test_all_layers_at_once_equal_each_layer_alone():
    backbone = create_backbone("lenet_300_100", 10, in_features=20, widths=(9, 5))
    bank = random_bank(backbone.layers, 4)
    bits = [bank.bits(number) for number in range(3)]
    alphas = [torch.randn(4, requires_grad=True) for _ in bits]
    weights = list(backbone.weights.values())
    at_once = mix_layers(bits, alphas, weights)
    apart = [mix(*each) for each in zip(bits, alphas, weights, strict=True)]
    inputs, found = torch.randn(7, 20), []
    for mixed in (at_once, apart):
        named = dict(zip(backbone.weights, mixed, strict=True))
        loss = backbone.forward(named, inputs).square().sum()
        found.append([*mixed, *torch.autograd.grad(loss, alphas)])
    assert all(map(torch.equal, *found))


def test_an_unused_layer_gets_a_zero_gradient(drawn):
    bits, alphas, weight = drawn
    first, second = (alpha.clone().requires_grad_() for alpha in alphas[:2])
    used, _ = mix_layers([bits, bits], [first, second], [weight, weight])
    used.sum().backward()
    assert torch.count_nonzero(first.grad) > 0
    assert second.grad is None or torch.count_nonzero(second.grad) == 0
