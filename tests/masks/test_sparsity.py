import math

from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.masks.sparsity import ALLOCATIONS, DENSITY_CAP, check_sparsity, ones_per_layer
from impresslearn.networks.layers import MaskableLayer


def layers_of(*shapes):
    return [MaskableLayer(f"{number}.weight", shape) for number, shape in enumerate(shapes)]


SHAPES = st.lists(
    st.lists(st.integers(1, 12), min_size=2, max_size=4).map(tuple), min_size=1, max_size=6
)
SPARSITIES = st.floats(0, 1, exclude_max=True)


def test_erdos_renyi_by_hand():
    # Densities in the ratio 16/60 : 10/24, times numel: 16 to 10 of 26 ones.
    assert ones_per_layer(layers_of((10, 6), (4, 6)), 1 - 26 / 84, "erdos_renyi") == (16, 10)
    # A convolution counts its kernel in the fan-in: (8 + 18) to (4 + 8).
    assert ones_per_layer(layers_of((8, 2, 3, 3), (4, 8)), 1 - 19 / 176, "erdos_renyi") == (13, 6)


@given(shapes=SHAPES, sparsity=SPARSITIES, other=SPARSITIES)
@settings(max_examples=300, deadline=None)
def test_counts_of_any_network(shapes, sparsity, other):
    layers = layers_of(*shapes)
    assert type(check_sparsity(sparsity)) is float
    even, shared = (ones_per_layer(layers, sparsity, allocation) for allocation in ALLOCATIONS)
    for layer, share, count in zip(layers, even, shared, strict=True):
        assert type(share) is type(count) is int
        assert 1 <= min(share, count) <= max(share, count) <= layer.numel
        exact = (1 - sparsity) * layer.numel
        assert share == 1 if exact < 0.5 else abs(share - exact) <= 0.5
        if sparsity >= 1 - DENSITY_CAP:
            assert count <= max(1, math.ceil(DENSITY_CAP * layer.numel))
    asked = round((1 - sparsity) * sum(layer.numel for layer in layers))
    assert sum(shared) == max(asked, len(layers))
    if other > sparsity:
        assert sum(ones_per_layer(layers, other, "erdos_renyi")) <= sum(shared)
