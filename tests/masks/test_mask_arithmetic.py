"""Set operations on masks, their overlap, and masks that are not binary."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn import masks
from impresslearn.errors import InputError
from impresslearn.masks import MaskBank, random_mask
from toys import LAYERS, same

MASKS = st.builds(
    lambda first, second, seed: random_mask(LAYERS, (first, second), seed),
    st.integers(1, 72),
    st.integers(1, 60),
    st.integers(0, 99),
)


def flat(mask):
    return torch.cat([ones.flatten() for ones in mask.values()])


@given(MASKS, MASKS)
@settings(max_examples=40, deadline=None)
def test_the_algebra_of_sets(a, b):
    both, either, one = (
        masks.intersection(a, b),
        masks.union(a, b),
        masks.symmetric_difference(a, b),
    )
    assert torch.equal(flat(both), flat(a) & flat(b))
    assert same(either, masks.complement(masks.intersection(*map(masks.complement, (a, b)))))
    assert same(one, masks.difference(either, both))
    assert same(masks.difference(a, b), masks.intersection(a, masks.complement(b)))
    assert same(masks.symmetric_difference(one, b), a)
    assert all(ones.dtype == torch.bool for ones in (both | one | masks.complement(a)).values())
    total = masks.density(both) + masks.density(either)
    assert total == pytest.approx(masks.density(a) + masks.density(b))
    assert masks.density(a) == pytest.approx(flat(a).double().mean().item())


@given(MASKS, MASKS)
@settings(max_examples=40, deadline=None)
def test_overlap_of_two_masks_is_that_of_a_bank(a, b):
    overlap = masks.overlap(a, b)
    bank = MaskBank(LAYERS)
    bank.append("a", a), bank.append("b", b)
    whole = bank.overlap()
    torch.testing.assert_close(overlap.measured, whole.measured[0, 1])
    torch.testing.assert_close(overlap.expected, whole.expected[0, 1])
    torch.testing.assert_close(overlap.by_layer, whole.by_layer[:, 0, 1])
    torch.testing.assert_close(overlap.expected_by_layer, whole.expected_by_layer[:, 0, 1])
    assert float(masks.overlap(a, a).measured) == 1


def test_masks_of_other_layers_are_refused():
    a, b = random_mask(LAYERS, (9, 9), 0), random_mask(LAYERS[:1], (9,), 0)
    for operation in (masks.intersection, masks.union, masks.difference, masks.overlap):
        with pytest.raises(InputError, match="cover the same layers; these differ"):
            operation(a, b)


def test_dense_masks_mix_as_packed_ones_do():
    drawn = [random_mask(LAYERS, (36, 30), 0, number) for number in range(3)]
    weights = {layer.name: torch.randn(layer.shape) for layer in LAYERS}
    alphas = {layer.name: torch.randn(3) for layer in LAYERS}
    floats = [{name: each.float() for name, each in mask.items()} for mask in drawn]
    for chosen, order in ((drawn, alphas), (floats, alphas), (drawn, tuple(alphas.values()))):
        for name, mixed in masks.dense_weights(chosen, order, weights).items():
            total = sum(alphas[name][t] * drawn[t][name] for t in range(3))
            torch.testing.assert_close(mixed, weights[name] * total)
    by_unit = {layer.name: torch.randn(3, layer.units) for layer in LAYERS}
    for name, mixed in masks.dense_weights(drawn, by_unit, weights).items():
        for unit, row in enumerate(mixed):
            total = sum(by_unit[name][t, unit] * drawn[t][name][unit] for t in range(3))
            torch.testing.assert_close(row, weights[name][unit] * total)


def test_dense_masks_that_do_not_fit_are_refused():
    mask = random_mask(LAYERS, (36, 30), 0)
    weights = {layer.name: torch.randn(layer.shape) for layer in LAYERS}
    alphas = {layer.name: torch.ones(1) for layer in LAYERS}
    other = {name: ones[:1] for name, ones in mask.items()}
    for wrong in ([], [{}], [other], [mask, other]):
        with pytest.raises(InputError, match="each mask needs a tensor of shape"):
            masks.dense_weights(wrong, alphas, weights)
    for odd in ({}, {name: torch.ones(2) for name in alphas}, []):
        with pytest.raises(InputError, match="alphas of .* must have the shape"):
            masks.dense_weights([mask], odd, weights)


def test_what_trained_a_mask_stands_for_it_and_other_things_are_refused():
    found = masks.TrainedMask({"a": torch.tensor([True, False])}, {}, {}, None)
    assert masks.density(found) == 0.5
    assert masks.union(found, masks.complement(found))["a"].all()
    assert float(masks.overlap(found, found).measured) == 1
    for wrong in ({"a": torch.ones(2)}, torch.ones(2), {"a": [True]}):
        with pytest.raises(InputError, match="a mask maps layer names to tensors of booleans"):
            masks.density(wrong)
