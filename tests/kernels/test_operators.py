"""`mix` and `mask_sums`: derivatives, all layers at once, `torch.func`, tracing, and errors."""

import shutil
import warnings
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from torch.func import grad, vjp, vmap

from impresslearn.errors import InputError
from impresslearn.kernels import (
    functions,
    implementation,
    mask_sums,
    mix,
    mix_layers,
    pack,
    reference,
    unpack,
)
from impresslearn.masks import random_bank
from impresslearn.networks import create_backbone

OPS = torch.ops.impresslearn


def draw(count=5, shape=(4, 21), per_unit=False, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    units, fan_in = shape[0], torch.Size(shape[1:]).numel()
    bits = pack(torch.rand((count, units, fan_in), generator=generator) < 0.4)
    alpha = torch.randn((count, units) if per_unit else (count,), generator=generator)
    weight = torch.randn(shape, generator=generator).to(dtype)
    return bits, alpha.requires_grad_(), weight.requires_grad_()


def plain_mix(bits, alpha, weight):
    """Eq. 1 as torch would compute it."""
    fan_in = weight[0].numel()
    masks = unpack(bits, fan_in).to(alpha.dtype)
    subscripts = "tu,tuj->uj" if alpha.dim() == 2 else "t,tuj->uj"
    return weight * torch.einsum(subscripts, alpha, masks).reshape(weight.shape)


@pytest.fixture(params=["fastest", "reference"])
def backend(request, monkeypatch):
    """Each implementation that may serve the operators."""
    if request.param == "reference":
        monkeypatch.setattr(functions, "implementation", lambda device: reference)
    return request.param


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 21), (1, 1), (3, 2, 3, 3), (6,)])
def test_gradients_are_those_of_the_plain_expression(shape, dtype, per_unit):
    bits, alpha, weight = draw(shape=shape, per_unit=per_unit, dtype=dtype)
    exact_alpha, exact_weight = (x.detach().double().requires_grad_() for x in (alpha, weight))
    upstream = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    mixed = mix(bits, alpha, weight)
    exact = plain_mix(bits, exact_alpha, exact_weight.reshape(shape[0], -1)).reshape(shape)
    mixed.backward(upstream)
    exact.backward(upstream.double())
    assert (mixed.dtype, alpha.grad.dtype, weight.grad.dtype) == (dtype, torch.float32, dtype)
    part = max(1e-5, 2 * torch.finfo(dtype).eps)
    close = partial(torch.testing.assert_close, rtol=part, atol=1e-5, check_dtype=False)
    close(mixed, exact)
    close(alpha.grad, exact_alpha.grad)
    close(weight.grad, exact_weight.grad)


@pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
def test_finite_differences(per_unit):
    # Both operators are linear in each argument, so a wide step has no error but rounding.
    close = {"eps": 0.25, "atol": 1e-3, "rtol": 1e-3}
    bits, alpha, weight = draw(3, (2, 18), per_unit)
    other = torch.randn(2, 18, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gradcheck prefers float64, which the kernels do not keep
        for function, arguments in (
            (lambda a, w: mix(bits, a, w), (alpha, weight)),
            (lambda x, y: mask_sums(bits, x, y, per_unit), (weight, other)),
        ):
            assert torch.autograd.gradcheck(function, arguments, **close)
            assert torch.autograd.gradgradcheck(function, arguments, **close)


def test_only_the_wanted_gradient_is_computed(monkeypatch):
    bits, alpha, weight = draw()
    counting = Mock(wraps=implementation(torch.device("cpu")))
    monkeypatch.setattr(functions, "implementation", lambda device: counting)
    mix(bits, alpha, weight.detach()).sum().backward()
    mix(bits, alpha.detach(), weight).sum().backward()
    assert [call[0] for call in counting.mock_calls] == ["mix", "mask_sums", "mix", "mix"]


@pytest.fixture(params=[False, True], ids=["layer", "unit"])
def drawn(request):
    """Packed masks, the coefficients of four tasks, and weights."""
    bits, alpha, weight = draw(6, (5, 19), request.param)
    return bits, torch.randn((4, *alpha.shape)), weight.detach()


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


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
@pytest.mark.parametrize("layout", ["plain", "transposed", "convolution"])
def test_operators_keep_what_they_promise_torch(layout, per_unit):
    shape = (3, 2, 3, 3) if layout == "convolution" else (3, 18)
    bits, alpha, weight = draw(2, shape, per_unit)
    other = torch.randn(shape, requires_grad=True)
    if layout == "transposed":
        weight = weight.detach().T.contiguous().T.requires_grad_()
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    full = (*checks, "test_aot_dispatch_dynamic") if layout == "plain" else checks
    torch.library.opcheck(OPS.mix.default, (bits, alpha, weight), test_utils=full)
    torch.library.opcheck(OPS.mask_sums.default, (bits, weight, other, per_unit), test_utils=full)


def step(bits, alpha, weight, inputs):
    return (inputs @ mix(bits, alpha, weight).T).square().mean()


@pytest.mark.parametrize(
    "compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_traced_whole_by_torch_compile(compiler):
    if compiler == "inductor" and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("torch.compile needs a C++ compiler")
    bits, alpha, weight = draw(4, (3, 20))
    inputs = torch.randn(6, 20)
    compiled = torch.compile(step, backend=compiler, fullgraph=True)
    expected = step(bits, alpha, weight, inputs)
    value = compiled(bits, alpha, weight, inputs)
    torch.testing.assert_close(value, expected)
    wanted = torch.autograd.grad(expected, (alpha, weight))
    torch.testing.assert_close(torch.autograd.grad(value, (alpha, weight)), wanted)


def test_exported_as_one_operator():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            bits, alpha, weight = draw(4, (3, 20))
            self.register_buffer("bits", bits)
            self.alpha, self.weight = nn.Parameter(alpha.detach()), nn.Parameter(weight.detach())

        def forward(self, inputs):
            return inputs @ mix(self.bits, self.alpha, self.weight).T

    module, inputs = Mixed(), torch.randn(6, 20)
    exported = torch.export.export(module, (inputs,))
    assert "impresslearn.mix" in exported.graph_module.code
    torch.testing.assert_close(exported.module()(inputs), module(inputs))


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        (torch.zeros(4, 2, dtype=torch.uint8), r"expected uint8 of shape \(masks, 3, 4\)"),
        (torch.zeros(4, 2, 4, dtype=torch.uint8), r"\(4, 2, 4\) .* weight of shape \(3, 20\)"),
        (torch.zeros(4, 3, 6, dtype=torch.uint8), r"\(masks, 3, 4\)"),
        (torch.zeros(4, 3, 4, dtype=torch.int32), "torch.int32"),
    ],
)
def test_bits_that_belong_to_another_weight_are_refused(bits, message):
    weight = torch.randn(3, 20)
    with pytest.raises(InputError, match=message):
        mix(bits, torch.ones(4), weight)
    with pytest.raises(InputError, match=message):
        mask_sums(bits, weight, weight)


def test_tensors_that_do_not_belong_together_are_refused():
    bits, alpha, weight = draw(4, (3, 20))
    for shape in ((), (3,), (5,), (4, 2), (3, 4), (4, 3, 1)):
        with pytest.raises(InputError, match=r"expected \(4,\) or \(4, 3\)"):
            mix(bits, torch.ones(shape), weight)
    with pytest.raises(InputError, match=r"\(3, 20\) and \(20, 3\) must be equal"):
        mask_sums(bits, weight, weight.T)
    with pytest.raises(InputError, match="the device of the bits, cpu, got meta"):
        mix(bits, alpha.to("meta"), weight)
    with pytest.raises(InputError, match="the device of the bits, meta, got cpu"):
        mask_sums(bits.to("meta"), weight, weight)
