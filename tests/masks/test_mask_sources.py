"""Masks that are drawn: random, disjoint, and their sparsity in each layer."""

import hashlib
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.kernels import pack
from impresslearn.masks import disjoint_mask, random_bank, random_mask
from impresslearn.masks.sparsity import ALLOCATIONS, DENSITY_CAP, check_sparsity, ones_per_layer
from impresslearn.networks.layers import MaskableLayer
from toys import LAYERS, quick_learner, same


@pytest.mark.parametrize("count", [1, 7, 100])
def test_disjoint_masks_share_every_weight_out(count):
    bank = random_bank(LAYERS, count, seed=5, source="disjoint")
    assert len(bank) == count
    for layer in LAYERS:
        masks = torch.stack([bank.mask(name)[layer.name] for name in bank.names])
        assert (masks.sum(dim=0) == 1).all()
        sizes = masks.flatten(1).sum(dim=1)
        assert int(sizes.max()) - int(sizes.min()) <= 1


def test_kernels_are_shared_out_whole():
    layers = (MaskableLayer("first.weight", (6, 4, 3, 3)), *LAYERS)
    sources = ("disjoint_kernels", "disjoint")
    whole, single = (random_bank(layers, 5, seed=5, source=source) for source in sources)
    assert not same(whole.mask(whole.names[0]), single.mask(single.names[0]))
    kernels = torch.stack([whole.mask(name)["first.weight"] for name in whole.names]).flatten(3)
    assert torch.equal(kernels.all(dim=3), kernels.any(dim=3))
    assert (kernels[..., 0].sum(dim=0) == 1).all()
    assert sorted(kernels[..., 0].sum(dim=(1, 2)).tolist()) == [4, 5, 5, 5, 5]
    for bank, kernels in ((whole, True), (single, False)):
        for info in bank.infos:
            drawn = disjoint_mask(layers, 5, 5, info.recipe["number"], kernels=kernels)
            assert same(drawn, bank.mask(info.name))
            assert info.source == "random"


@pytest.mark.parametrize("allocation", ["uniform", "erdos_renyi"])
def test_masks_are_drawn_again_from_their_recipe(allocation):
    bank = random_bank(LAYERS, 4, sparsity=0.7, allocation=allocation, seed=11)
    for info in bank.infos:
        recipe = info.recipe
        assert info.ones == ones_per_layer(LAYERS, recipe["sparsity"], recipe["allocation"])
        drawn = random_mask(LAYERS, info.ones, recipe["seed"], recipe["number"])
        assert same(drawn, bank.mask(info.name))
        assert info.source == "random"
    for other in ((6, 4, 0), (7, 5, 0)):
        assert not same(disjoint_mask(LAYERS, 6, 5, 0), disjoint_mask(LAYERS, *other))


def test_disjoint_masks_are_the_same_on_every_machine():
    """Golden: files hold only their seeds."""
    shares = sum(
        number * disjoint_mask(LAYERS, 4, 0, number)["head.weight"].flatten().long()
        for number in range(4)
    )
    assert shares[:12].tolist() == [3, 1, 0, 1, 2, 0, 1, 2, 0, 3, 2, 3]


def test_a_random_mask_is_that_of_every_other_machine():
    # sha256 over pack(random_mask(LAYERS, (30, 20), seed=7, number=3)), layer after layer. Philox
    # 4x64-10 written out in plain Python, key (7, 0), counters (i, 0, 3, layer) from i = 1, gives
    # the same. Stores rebuild masks from seeds: a change here breaks every store.
    drawn, digest = random_mask(LAYERS, (30, 20), seed=7, number=3), hashlib.sha256()
    for layer, mask in zip(LAYERS, drawn.values(), strict=True):
        digest.update(pack(mask.reshape(layer.units, layer.fan_in)).numpy().tobytes())
    assert digest.hexdigest() == "e70dbd1e7b42f802ff2306c7b2624de33b2adc2d88a4a7aacf5b52a80914d866"


def test_a_learner_adds_masks_of_any_source_and_goes_on_where_it_stopped():
    learner = quick_learner(seed=3).add_masks(1).add_masks(1).add_masks(2, source="disjoint")
    drawn = quick_learner(seed=3).add_random_masks(2)
    assert learner.bank_.names == ("random-0", "random-1", "disjoint-0", "disjoint-1")
    assert learner.bank_.infos[:2] == drawn.bank_.infos
    assert same(learner.bank_.mask("random-1"), drawn.bank_.mask("random-1"))
    learner.add_masks(2, source="disjoint", seed=4)
    assert learner.bank_.names[-1] == "disjoint-3"


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
