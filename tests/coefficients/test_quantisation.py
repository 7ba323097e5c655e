"""Rounding to every precision, the bytes that it takes, and integers under training."""

import math

import pytest
import torch

from impresslearn.coefficients.coding import LARGEST
from impresslearn.coefficients.quantisation import (
    PRECISIONS,
    Grid,
    TensorLayout,
    decode_tensors,
    encode_tensors,
)
from impresslearn.coefficients.quantized_parameters import QuantizedParameters, rounded_steps

LAYOUTS = [
    TensorLayout("alpha", (5,)),
    TensorLayout("per unit", (4, 3)),
    TensorLayout("scale", (7,), around_one=True),
    TensorLayout("multiples", (3, 6), sparse=True),
]


def draw(seed=0):
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(layout.shape, generator=generator) for layout in LAYOUTS]
    drawn[2] = 1 + 0.1 * drawn[2]
    drawn[3] = drawn[3].round()
    return drawn


@pytest.mark.parametrize(
    ("precision", "size"),
    [
        ("float32", 4 * (5 + 12 + 7 + 18)),
        ("float16", 2 * (5 + 12 + 7 + 18)),
        # Integers, a float16 step per column, and an offset for what lies around one.
        ("int8", (5 + 2) + (12 + 3 * 2) + (7 + 2 + 2) + (18 + 6 * 2)),
        ("int4", (3 + 2) + (6 + 3 * 2) + (4 + 2 + 2) + (9 + 6 * 2)),
    ],
)
def test_bytes_and_errors_of_a_precision(precision, size):
    tensors = draw()
    content = encode_tensors(tensors, LAYOUTS, precision)
    assert len(content) == size
    decoded, grids = decode_tensors(content, LAYOUTS, precision)
    assert grids is None
    allowed = {"float32": 0, "float16": 2e-3, "int8": 0.02, "int4": 0.4}[precision]
    for values, rounded in zip(tensors, decoded, strict=True):
        assert rounded.shape == values.shape
        assert (rounded - values).abs().max() <= allowed


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_was_rounded_stays_as_it_is(precision):
    content = encode_tensors(draw(), LAYOUTS, precision)
    once, grids = decode_tensors(content, LAYOUTS, precision)
    if grids is not None:
        assert encode_tensors(once, LAYOUTS, precision, grids) == content
    twice, _ = decode_tensors(encode_tensors(once, LAYOUTS, precision, grids), LAYOUTS, precision)
    for one, two in zip(once, twice, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)


def test_numbers_on_grids_come_back_exactly():
    grids = (Grid(0.5, 0.25), Grid(0.125, 0.0), Grid(0.25, 1.0), Grid(2.0, 0.0))
    generator = torch.Generator().manual_seed(1)
    tensors = []
    for layout, grid in zip(LAYOUTS, grids, strict=True):
        levels = torch.randint(-100, 100, layout.shape, generator=generator)
        tensors.append(grid.offset + grid.step * levels.float())
    content = encode_tensors(tensors, LAYOUTS, "coded", grids)
    decoded, found = decode_tensors(content, LAYOUTS, "coded")
    assert found == grids
    assert all(map(torch.equal, decoded, tensors))


def test_tensors_of_zeros_take_a_bit_or_two_and_all_together_no_byte():
    zeros = [torch.zeros(layout.shape) for layout in LAYOUTS]
    assert encode_tensors(zeros, LAYOUTS, "coded") == b""
    tensors, grids = decode_tensors(b"", LAYOUTS, "coded")
    assert all(map(torch.equal, tensors, zeros))
    # What is decoded can be encoded again.
    assert encode_tensors(tensors, LAYOUTS, "coded", grids) == b""
    one = [*zeros[:-1], draw()[-1]]
    alone = encode_tensors(one[-1:], LAYOUTS[-1:], "coded")
    assert len(encode_tensors(one, LAYOUTS, "coded")) <= len(alone) + 1


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_content_of_another_length_is_refused(precision):
    content = encode_tensors(draw(), LAYOUTS, precision)
    # A code may be cut off unnoticed: the checksum of a store's row tells that.
    cut = () if precision == "coded" else (content[:-1], b"")
    for damaged in (content + bytes(1), *cut):
        with pytest.raises(ValueError, match="another network|damaged"):
            decode_tensors(damaged, LAYOUTS, precision)


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
