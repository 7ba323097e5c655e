import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.errors import InputError
from impresslearn.kernels import row_bytes, unpack
from impresslearn.masks.bank import MaskBank
from impresslearn.networks.layers import MaskableLayer
from toys import LAYERS, same


def draw(seed, density=0.4, layers=LAYERS):
    generator = torch.Generator().manual_seed(seed)
    return {layer.name: torch.rand(layer.shape, generator=generator) < density for layer in layers}


def filled(count, layers=LAYERS):
    bank = MaskBank(layers)
    for number in range(count):
        bank.append(f"m{number}", draw(number, layers=layers))
    return bank


def check(bank, seeds):
    """The bank holds the masks of these seeds, in this order."""
    assert len(bank) == len(bank.names) == len(bank.infos) == len(seeds)
    for place, (name, seed) in enumerate(zip(bank.names, seeds, strict=True)):
        assert same(bank.mask(name), draw(seed))
        assert bank.index(name) == place
        assert name in bank
    for number, layer in enumerate(LAYERS):
        bits = bank.bits(number)
        assert bits.shape == (len(seeds), layer.units, row_bytes(layer.fan_in))
        for seed, mask in zip(seeds, unpack(bits, layer.fan_in), strict=True):
            assert torch.equal(mask.reshape(layer.shape), draw(seed)[layer.name])


def test_masks_come_back_as_they_went_in():
    for count in (0, 1, 20):
        check(filled(count), range(count))
    assert "m0" not in filled(0)
    assert torch.equal(filled(20).bits(1, 7), filled(7).bits(1))
    size = 2 * (4 * 4 + 3 * 4)
    assert filled(2).nbytes == size
    assert repr(filled(2)) == f"MaskBank(2 masks, 2 layers, {size} bytes packed)"


@pytest.mark.parametrize(
    ("name", "mask"),
    [
        ("m0", draw(9)),
        ("new", {"conv.weight": draw(9)["conv.weight"]}),
        ("new", draw(9) | {"other": torch.ones(1) > 0}),
    ],
)
def test_a_mask_that_does_not_fit_leaves_the_bank_unchanged(name, mask):
    bank = filled(3)
    with pytest.raises(InputError):
        bank.append(name, mask)
    check(bank, range(3))
    bank.append("next", draw(3))
    check(bank, range(4))


def test_earlier_bits_never_change_as_the_bank_grows():
    bank, held = MaskBank(LAYERS), []
    for count in range(119):
        held.append([bank.bits(0), bank.bits(0).clone()])
        bank.append(f"m{count}", draw(count))
    check(bank, range(119))
    assert all(torch.equal(*each) for each in held)


def test_another_device_is_another_bank():
    bank = filled(33)  # with room to spare, which the two must not share
    moved = bank.to("cpu")
    assert bank.nbytes > moved.nbytes
    assert moved.infos == bank.infos
    moved.append("theirs", draw(50))
    bank.append("ours", draw(60))
    check(moved, [*range(33), 50])
    check(bank, [*range(33), 60])
    elsewhere = bank.to("meta")
    assert elsewhere.device.type == elsewhere.bits(0).device.type == "meta"
    assert elsewhere.bits(1).shape == bank.bits(1).shape


def jaccard(first, second):
    return float((first & second).sum() / (first | second).sum())


@given(
    seeds=st.lists(st.integers(0, 99), min_size=2, max_size=5), density=st.sampled_from([0.2, 0.7])
)
@settings(max_examples=25, deadline=None)
def test_overlap_is_the_jaccard_index_of_every_pair(seeds, density):
    bank, masks = MaskBank(LAYERS), [draw(seed, density) for seed in seeds]
    for number, mask in enumerate(masks):
        bank.append(str(number), mask)
    overlap = bank.overlap()
    whole = [torch.cat([each.flatten() for each in mask.values()]) for mask in masks]
    for i in range(len(seeds)):
        for j in range(len(seeds)):
            assert overlap.measured[i, j] == pytest.approx(jaccard(whole[i], whole[j]))
            for number, layer in enumerate(LAYERS):
                expected = jaccard(masks[i][layer.name], masks[j][layer.name])
                assert overlap.by_layer[number, i, j] == pytest.approx(expected)


def test_expected_overlap_by_hand():
    layers = (MaskableLayer("a", (1, 10)), MaskableLayer("b", (1, 20)))
    bank = MaskBank(layers)
    for name, (first, second) in {"x": (5, 4), "y": (2, 10)}.items():
        mask = {"a": torch.arange(10)[None] < first, "b": torch.arange(20)[None] < second}
        bank.append(name, mask)
    overlap = bank.overlap()
    # Chance intersections 5·2/10 = 1 and 4·10/20 = 2, of 7 and 14 ones.
    assert overlap.expected_by_layer[:, 0, 1].tolist() == pytest.approx([1 / 6, 2 / 12])
    assert overlap.expected[0, 1] == pytest.approx(3 / 18)
    assert overlap.measured[0, 1] == pytest.approx((2 + 4) / (5 + 10))
