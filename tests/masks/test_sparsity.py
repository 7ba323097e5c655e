import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.errors import InputError
from impresslearn.masks.sparsity import ALLOCATIONS, DENSITY_CAP, check_sparsity, ones_per_layer
from impresslearn.networks.layers import MaskableLayer


def layers_of(*shapes):
    return [MaskableLayer(f"{number}.weight", shape) for number, shape in enumerate(shapes)]


LENET = layers_of((300, 784), (100, 300), (10, 100))
SHAPES = st.lists(
    st.lists(st.integers(1, 12), min_size=2, max_size=4).map(tuple), min_size=1, max_size=6
)
SPARSITIES = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize("sparsity", [0, 0.0, 0.5, 0.999, 1e-9])
def test_the_fraction_of_zeros_is_taken_as_it_is(sparsity):
    assert check_sparsity(sparsity) == sparsity
    assert type(check_sparsity(sparsity)) is float


@pytest.mark.parametrize(
    ("sparsity", "message"),
    [
        (95, r"got 95; did you mean 0.95\?"),
        (99.5, r"did you mean 0.995\?"),
        (1, r"must lie in \[0, 1\), got 1$"),
        (100, "got 100$"),
        (-0.1, "got -0.1$"),
        (float("nan"), "got nan$"),
        (float("inf"), "got inf$"),
        (True, "must be a number, got True"),
        ("0.9", "must be a number, got '0.9'"),
        (None, "must be a number, got None"),
    ],
)
def test_other_sparsities_are_refused(sparsity, message):
    with pytest.raises(InputError, match=message):
        check_sparsity(sparsity)
    for allocation in ALLOCATIONS:
        with pytest.raises(InputError, match=message):
            ones_per_layer(LENET, sparsity, allocation)


def test_an_unknown_allocation_is_refused():
    with pytest.raises(InputError, match="one of uniform, erdos_renyi, got 'er'"):
        ones_per_layer(LENET, 0.9, "er")


def test_uniform_keeps_the_same_share_of_every_layer():
    assert ones_per_layer(LENET, 0.9) == (23_520, 3_000, 100)
    assert ones_per_layer(LENET, 0) == (235_200, 30_000, 1_000)
    assert ones_per_layer(layers_of((1, 3), (2, 5)), 0.99) == (1, 1)


def test_erdos_renyi_gives_the_head_half_of_its_weights_at_most():
    ones = ones_per_layer(LENET, 0.9, "erdos_renyi")
    assert sum(ones) == 26_620
    assert ones[2] == 500
    # The other two share what is left by (fan_in + units): 1084 to 400.
    assert ones[0] / ones[1] == pytest.approx(1084 / 400, rel=1e-3)


def test_erdos_renyi_by_hand():
    # Densities in the ratio 16/60 : 10/24, times numel: 16 to 10 of 26 ones.
    assert ones_per_layer(layers_of((10, 6), (4, 6)), 1 - 26 / 84, "erdos_renyi") == (16, 10)
    # A convolution counts its kernel in the fan-in: (8 + 18) to (4 + 8).
    assert ones_per_layer(layers_of((8, 2, 3, 3), (4, 8)), 1 - 19 / 176, "erdos_renyi") == (13, 6)


def test_no_layer_exceeds_half_until_the_network_does():
    layers = layers_of((20, 20), (2, 4), (30, 30))
    for sparsity in (0.5, 0.6, 0.8, 0.99):
        ones = ones_per_layer(layers, sparsity, "erdos_renyi")
        assert all(n <= DENSITY_CAP * layer.numel for n, layer in zip(ones, layers, strict=True))
    above = ones_per_layer(layers, 0.4, "erdos_renyi")
    assert above[1] == 8
    assert sum(above) == round(0.6 * 1308)


@given(shapes=SHAPES, sparsity=SPARSITIES, allocation=st.sampled_from(ALLOCATIONS))
@settings(max_examples=300, deadline=None)
def test_every_layer_keeps_at_least_one_and_at_most_all(shapes, sparsity, allocation):
    layers = layers_of(*shapes)
    ones = ones_per_layer(layers, sparsity, allocation)
    assert len(ones) == len(layers)
    for count, layer in zip(ones, layers, strict=True):
        assert type(count) is int
        assert 1 <= count <= layer.numel


@given(shapes=SHAPES, sparsity=SPARSITIES)
@settings(max_examples=300, deadline=None)
def test_erdos_renyi_keeps_the_total_and_the_cap(shapes, sparsity):
    layers = layers_of(*shapes)
    ones = ones_per_layer(layers, sparsity, "erdos_renyi")
    asked = round((1 - sparsity) * sum(layer.numel for layer in layers))
    assert sum(ones) == max(asked, len(layers))
    if sparsity >= 1 - DENSITY_CAP:
        for count, layer in zip(ones, layers, strict=True):
            assert count <= max(1, math.ceil(DENSITY_CAP * layer.numel))


@given(shapes=SHAPES, sparsity=SPARSITIES)
@settings(max_examples=200, deadline=None)
def test_uniform_is_within_half_a_weight_of_the_share(shapes, sparsity):
    layers = layers_of(*shapes)
    for count, layer in zip(ones_per_layer(layers, sparsity), layers, strict=True):
        share = (1 - sparsity) * layer.numel
        assert count == 1 if share < 0.5 else abs(count - share) <= 0.5


@given(shapes=SHAPES, first=SPARSITIES, second=SPARSITIES)
@settings(max_examples=100, deadline=None)
def test_a_sparser_mask_never_keeps_more(shapes, first, second):
    layers, (low, high) = layers_of(*shapes), sorted((first, second))
    dense, sparse = (sum(ones_per_layer(layers, s, "erdos_renyi")) for s in (low, high))
    assert sparse <= dense
