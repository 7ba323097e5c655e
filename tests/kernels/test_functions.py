"""All layers at once, and `torch.func` transforms over tasks."""

import pytest
import torch
from torch.func import functional_call, grad, vjp, vmap

from impresslearn.kernels import mask_sums, mix, mix_layers, pack, reference
from impresslearn.masks import random_bank
from impresslearn.networks import create_backbone


def draw(count=6, units=5, fan_in=19, tasks=4, per_unit=False):
    generator = torch.Generator().manual_seed(1)
    bits = pack(torch.rand((count, units, fan_in), generator=generator) < 0.4)
    shape = (tasks, count, units) if per_unit else (tasks, count)
    alphas = torch.randn(shape, generator=generator)
    return bits, alphas, torch.randn((units, fan_in), generator=generator)


@pytest.mark.parametrize("per_unit", [False, True])
def test_vmap_over_tasks_equals_task_by_task(per_unit):
    bits, alphas, weight = draw(per_unit=per_unit)
    together = vmap(lambda alpha: mix(bits, alpha, weight))(alphas)
    apart = torch.stack([reference.mix(bits, alpha, weight) for alpha in alphas])
    assert torch.equal(together, apart)


@pytest.mark.parametrize("per_unit", [False, True])
def test_gradients_of_many_tasks_at_once(per_unit):
    bits, alphas, weight = draw(per_unit=per_unit)

    def loss(alpha):
        return mix(bits, alpha, weight).sin().sum()

    together = vmap(grad(loss))(alphas)
    for alpha, gradient in zip(alphas, together, strict=True):
        alpha = alpha.clone().requires_grad_()
        (alone,) = torch.autograd.grad(loss(alpha), alpha)
        torch.testing.assert_close(gradient, alone)


@pytest.mark.parametrize("per_unit", [False, True])
def test_many_gradients_through_one_graph_that_are_not_differentiated_again(per_unit):
    bits, alphas, weight = draw(per_unit=per_unit)
    grads = torch.randn(3, *weight.shape)
    _, pull = vjp(lambda alpha: mix(bits, alpha, weight), alphas[0])
    with torch.no_grad():
        (together,) = vmap(pull)(grads)
    apart = [mask_sums(bits, each, weight, per_unit) for each in grads]
    torch.testing.assert_close(together, torch.stack(apart))


def test_second_derivative_under_torch_func():
    bits, alphas, weight = draw()

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
    together = mix_layers(bits, alphas, weights)
    apart = [mix(*each) for each in zip(bits, alphas, weights, strict=True)]
    for one, other in zip(together, apart, strict=True):
        assert torch.equal(one, other)
    inputs = torch.randn(7, 20)

    def loss(mixed):
        named = dict(zip(backbone.weights, mixed, strict=True))
        return functional_call(backbone.module, named, inputs).square().sum()

    ours = torch.autograd.grad(loss(together), alphas)
    theirs = torch.autograd.grad(loss(apart), alphas)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


def test_an_unused_layer_gets_a_zero_gradient():
    bits, alphas, weight = draw()
    first, second = alphas[0].clone().requires_grad_(), alphas[1].clone().requires_grad_()
    used, _ = mix_layers([bits, bits], [first, second], [weight, weight])
    used.sum().backward()
    assert first.grad is not None
    assert torch.count_nonzero(first.grad) > 0
    assert second.grad is None or torch.count_nonzero(second.grad) == 0
