"""Image folders of the API, of files and of streams go through one reader."""

import os
import resource
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from impresslearn.data import Preprocessing, as_examples
from impresslearn.data.images import image_files
from impresslearn.errors import InputError
from impresslearn.streams import from_folder, split_imagenet
from toys import read_examples, read_inputs

Image = pytest.importorskip("PIL.Image")
GENERATOR = np.random.default_rng(0)
DOORS = {
    "api": lambda root: as_examples(root / "task" / "train"),
    "files": lambda root: read_examples(root / "task" / "train"),
    "flat": lambda root: read_inputs(root / "task" / "train" / "ant"),
    "stream": lambda root: from_folder(root)[0].train,
    "imagenet": lambda root: split_imagenet(root / "task", classes_per_task=2, size=5)[0].train,
}


def pixels(height=5, width=5, channels=3):
    return GENERATOR.integers(0, 256, (height, width, channels)).astype(np.uint8).squeeze()


@pytest.fixture
def root(tmp_path):
    """A task of two classes, an image each; "ant" comes first."""
    for part in ("train", "val", "test"):
        for name in ("ant", "bee"):
            path = tmp_path / "task" / part / name / "0.png"
            path.parent.mkdir(parents=True)
            Image.fromarray(pixels()).save(path)
    return tmp_path


def ant(root) -> Path:
    return root / "task" / "train" / "ant" / "0.png"


def read(path):
    """(h, w, 3) uint8, as the reader gives it."""
    return image_files([path])[0][0].permute(1, 2, 0).numpy()


@pytest.mark.parametrize("door", DOORS)
def test_hidden_files_and_folders_are_left_out(root, door):
    for place in ("ant/._0.png", ".cache/0.png"):
        path = root / "task" / "train" / place
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"no image")
    assert len(DOORS[door](root)) == (1 if door == "flat" else 2)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("fault", ["16 bits", "bomb", "damaged", "no image"])
def test_every_error_names_the_file(root, door, fault, monkeypatch):
    path = ant(root)
    if fault == "16 bits":
        Image.fromarray(np.full((5, 5), 300, np.uint16)).save(path)
    elif fault == "bomb":
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    else:
        whole = path.read_bytes()
        path.write_bytes(b"no image" if fault == "no image" else whole[:50])
    with pytest.raises(InputError, match="0.png") as caught:
        DOORS[door](root)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("door", [door for door in DOORS if door != "flat"])
def test_a_class_without_images_is_refused(root, door):
    (root / "task" / "train" / "cow").mkdir()
    with pytest.raises(InputError, match=r"no image below .*cow; expected .*/CLASS/IMAGE files"):
        DOORS[door](root)


@pytest.mark.skipif(os.name != "posix", reason="names of any bytes are posix's")
@pytest.mark.parametrize("door", ["api", "files", "stream"])
def test_a_class_folder_whose_name_is_no_text_is_refused(root, door):
    folder = root / "task" / "train"
    (folder / "bee").rename(folder / os.fsdecode(b"b\xff"))
    with pytest.raises(InputError, match="no valid Unicode|which train lacks"):
        DOORS[door](root)


@pytest.mark.parametrize("door", [door for door in DOORS if door != "flat"])
def test_inputs_are_known_for_pixels(root, door):
    assert DOORS[door](root).pixels


def test_modes(tmp_path):
    colour = pixels()
    path = tmp_path / "a.png"
    Image.fromarray(pixels(channels=1)).save(path)
    grey = read(path)
    assert (grey == grey[:, :, :1]).all()
    Image.fromarray(np.dstack([colour, np.zeros((5, 5), np.uint8)])).save(path)
    assert (read(path) == colour).all()
    Image.fromarray(colour).convert("CMYK").save(tmp_path / "a.tif")
    assert (read(tmp_path / "a.tif") == colour).all()
    Image.fromarray(grey[..., 0] > 99).save(path)
    assert (read(path) == 255 * (grey > 99)).all()
    palette = Image.fromarray(colour).quantize(25)
    palette.save(path, transparency=bytes(range(25)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (read(path) == np.array(palette.convert("RGB"))).all()


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
def test_images_are_turned_as_their_camera_was_held(tmp_path, suffix):
    upright = Image.fromarray(np.repeat(np.arange(8, dtype=np.uint8) * 30, 64).reshape(8, 64))
    path = tmp_path / f"a.{suffix}"
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn clockwise
    upright.transpose(Image.Transpose.ROTATE_90).save(path, exif=exif)
    assert np.abs(read(path)[..., 0].astype(int) - np.array(upright)).max() <= 3


@pytest.mark.parametrize("side", [1, 4, 7, 30])
@pytest.mark.parametrize("shape", [(20, 31), (31, 20), (7, 9), (13, 13), (4, 200)])
def test_cutting_out_while_resizing_gives_the_same_pixels(tmp_path, shape, side):
    path = tmp_path / "a.png"
    whole = Image.fromarray(pixels(*shape))
    whole.save(path)
    scale = side / min(shape)
    width, height = (max(side, round(length * scale)) for length in whole.size)
    left, top = (width - side) // 2, (height - side) // 2
    resized = whole.resize((width, height), Image.Resampling.BILINEAR)
    expected = np.array(resized.crop((left, top, left + side, top + side)))
    given = 255 * image_files([path], Preprocessing(size=side))[0][0].permute(1, 2, 0).numpy()
    assert np.abs(given.round() - expected).max() <= 1


def test_long_and_narrow_images_take_no_more_memory_than_what_is_kept(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (60_000, 1), (9, 9, 9)).save(path)
    images = image_files([path], Preprocessing(size=224))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert torch.equal(images[0][0], torch.full((3, 224, 224), 9) / 255)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "9", 8193])
def test_sizes_out_of_range(root, size):
    with pytest.raises(InputError, match="size must be a whole number of pixels from 1 to 8192"):
        read_inputs(ant(root), size=size)
