"""Integers under training: values, code length and gradients are those of the plain formulas."""

import math

import torch

from impresslearn.coefficients.coding import LARGEST
from impresslearn.coefficients.quantisation import Grid
from impresslearn.coefficients.quantized_parameters import QuantizedParameters, rounded_steps

SHAPES = [(20, 30), (7,), (3, 5)]
GRIDS = [Grid(0.1, 0.05), Grid(0.3, 1.0), Grid(0.01, -0.5)]
SPEEDS = [2.5, 10.0, 1.0]


def plain(numbers, steps, offsets, widths):
    """All values, and bits by a Laplace density's mass within 1/2 of each number."""
    values, bits = [], 0.0
    parts = numbers.split([math.prod(shape) for shape in SHAPES])
    for place, (part, grid, speed) in enumerate(zip(parts, GRIDS, SPEEDS, strict=True)):
        exact = (speed * part).clamp(-LARGEST, LARGEST)
        step = rounded_steps(grid.step * steps[place].exp())
        offset = rounded_steps(grid.offset * (1 + offsets[place]))
        values.append(offset + step * (exact + (exact.round() - exact).detach()))
        size, width = exact.abs().double(), widths[place].exp().double()
        near = 1 - (torch.exp(-(size + 0.5) / width) + torch.exp((size - 0.5) / width)) / 2
        far = (size - 0.5) / width - torch.log((1 - torch.exp(-1 / width)) / 2)
        bits = bits + torch.where(size < 0.5, -near.clamp(min=1e-30).log(), far).sum()
    return torch.cat(values), bits / math.log(2)


def test_values_bits_and_gradients_are_those_of_the_formulas():
    generator = torch.Generator().manual_seed(0)
    tensors = QuantizedParameters(SHAPES, GRIDS, SPEEDS, "cpu")
    with torch.no_grad():
        for parameter in tensors.parameters:
            parameter.normal_(generator=generator)
        tensors.parameters[0][:4] = torch.tensor([0.0, 1000.0, -1000.0, 0.1])
    weight = torch.randn(sum(map(math.prod, SHAPES)), generator=generator)

    flat = torch.cat([tensor.flatten() for tensor in tensors.values()])
    ((flat * weight).sum() + 0.3 * tensors.bits()).backward()
    copies = [parameter.detach().clone().requires_grad_() for parameter in tensors.parameters]
    values, bits = plain(*copies)
    ((values * weight).sum() + 0.3 * bits).backward()

    assert torch.equal(flat, values)
    torch.testing.assert_close(tensors.bits().double(), bits, rtol=1e-6, atol=0)
    for parameter, copy in zip(tensors.parameters, copies, strict=True):
        torch.testing.assert_close(parameter.grad, copy.grad, rtol=2e-5, atol=1e-5)
    kept, grids = tensors.result()
    assert torch.equal(torch.cat([tensor.flatten() for tensor in kept]), values.detach())
    assert [grid.step > 0 for grid in grids] == [True] * 3
