import pytest
import torch

from impresslearn.kernels import row_bytes, unpack
from impresslearn.masks.bank import MaskBank
from impresslearn.networks.layers import MaskableLayer
from toys import LAYERS, same


def draw(seed):
    generator = torch.Generator().manual_seed(seed)
    return {layer.name: torch.rand(layer.shape, generator=generator) < 0.4 for layer in LAYERS}


def filled(count):
    bank = MaskBank(LAYERS)
    for number in range(count):
        bank.append(f"m{number}", draw(number))
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
    assert repr(filled(2)) == f"MaskBank(2 masks, 2 layers, {size} bytes packed)"


def test_earlier_bits_never_change_as_the_bank_grows():
    bank, held = MaskBank(LAYERS), []
    for count in range(119):
        held.append([bank.bits(0), bank.bits(0).clone()])
        bank.append(f"m{count}", draw(count))
    check(bank, range(119))
    assert all(torch.equal(*each) for each in held)


def test_another_device_is_another_bank():
    bank = filled(33)  # with room to spare
    moved = bank.to("cpu")
    assert moved.infos == bank.infos
    moved.append("theirs", draw(50))
    bank.append("ours", draw(60))
    check(moved, [*range(33), 50])
    check(bank, [*range(33), 60])
    elsewhere = bank.to("meta")
    assert elsewhere.device.type == elsewhere.bits(0).device.type == "meta"
    assert elsewhere.bits(1).shape == bank.bits(1).shape


def test_overlap_by_hand():
    layers = (MaskableLayer("a", (1, 10)), MaskableLayer("b", (1, 20)))
    bank = MaskBank(layers)
    for name, (first, second) in {"x": (5, 4), "y": (2, 10)}.items():
        mask = {"a": torch.arange(10)[None] < first, "b": torch.arange(20)[None] < second}
        bank.append(name, mask)
    overlap = bank.overlap()
    # Chance intersections 5·2/10 = 1 and 4·10/20 = 2, of 7 and 14 ones.
    assert overlap.expected_by_layer[:, 0, 1].tolist() == pytest.approx([1 / 6, 2 / 12])
    assert overlap.expected[0, 1] == pytest.approx(3 / 18)
    assert overlap.by_layer[:, 0, 1].tolist() == pytest.approx([2 / 5, 4 / 10])
    assert overlap.measured[0, 1] == pytest.approx((2 + 4) / (5 + 10))
    assert overlap.measured[0, 0] == overlap.measured[1, 1] == 1
