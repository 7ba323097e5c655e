import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import ndimage

from impresslearn.errors import InputError
from impresslearn.streams import transforms
from impresslearn.streams.transforms import flip_and_shift, permute_pixels, rotate


def images(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
@pytest.mark.parametrize("size", [8, 9, 28])
def test_quarter_turns_are_exact_and_counter_clockwise(quarters: int, size: int) -> None:
    x = images(3, 2, size, size)
    expected = torch.rot90(x, quarters, (-2, -1))
    torch.testing.assert_close(rotate(x, 90 * quarters), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("degrees", [1, 30, 137, 200, 359])
@pytest.mark.parametrize("shape", [(28, 28), (9, 14)])
def test_rotation_agrees_with_scipy(degrees: int, shape: tuple[int, int]) -> None:
    x = images(2, 1, *shape)
    expected = ndimage.rotate(
        x.numpy(), degrees, axes=(3, 2), reshape=False, order=1, mode="grid-constant"
    )
    np.testing.assert_allclose(rotate(x, degrees).numpy(), expected, atol=2e-5)


def test_rotation_brings_in_black_corners() -> None:
    turned = rotate(torch.ones(1, 1, 28, 28), 45)[0, 0]
    assert turned[0, 0] == turned[0, -1] == turned[-1, 0] == turned[-1, -1] == 0
    assert turned[14, 14] == pytest.approx(1, abs=1e-6)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    x = images(7, 3, 8, 8).transpose(-1, -2)
    whole = rotate(x, 33)
    monkeypatch.setattr(transforms, "CHUNK_PIXELS", 300)
    torch.testing.assert_close(rotate(x, 33), whole)
    assert rotate(x[:0], 33).shape == (0, 3, 8, 8)


def test_permutation_moves_pixels_alike_in_every_channel() -> None:
    x = images(2, 3, 4, 5)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    moved = permute_pixels(x, order)
    assert torch.equal(moved.flatten(-2)[1, 2, 7], x.flatten(-2)[1, 2, order[7]])
    assert torch.equal(permute_pixels(moved, torch.argsort(order)), x)


def reference_flip_and_shift(image: torch.Tensor, mirror: bool, down: int, right: int, pad: int):
    padded = F.pad(image.flip(-1) if mirror else image, (pad,) * 4, mode="reflect")
    height, width = image.shape[-2:]
    return padded[..., pad + down : pad + down + height, pad + right : pad + right + width]


def test_each_image_is_one_of_the_pad_and_crop_candidates() -> None:
    x = images(64, 2, 6, 7)
    moved = flip_and_shift(x, torch.Generator().manual_seed(0), pixels=2)
    seen = set()
    for image, result in zip(x, moved, strict=True):
        found = [
            (mirror, down, right)
            for mirror in (False, True)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if torch.equal(reference_flip_and_shift(image, mirror, down, right, 2), result)
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert len({(down, right) for _, down, right in seen}) > 12
    assert {mirror for mirror, _, _ in seen} == {False, True}
    assert {down for _, down, _ in seen} == {right for _, _, right in seen} == set(range(-2, 3))


def test_augmentation_follows_its_generator_and_spares_its_argument() -> None:
    x = images(16, 3, 32, 32)
    before = x.clone()
    first, again, other = (
        flip_and_shift(x, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(x, before)
    assert first.shape == x.shape


def test_unusable_shapes_are_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(n, c, h, w\), got \(8, 8\)"):
        rotate(torch.zeros(8, 8), 10)
    with pytest.raises(InputError, match="floating-point"):
        rotate(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), 10)
    with pytest.raises(InputError, match=r"order must have shape \(64,\), got \(63,\)"):
        permute_pixels(torch.zeros(1, 1, 8, 8), torch.arange(63))
    with pytest.raises(InputError, match="larger images than 4x4"):
        flip_and_shift(torch.zeros(1, 1, 4, 4))
