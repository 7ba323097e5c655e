"""Image folders of the API, of files and of streams go through one reader."""

import os
import resource
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from impresslearn.data import Preprocessing, StreamedExamples, as_examples, to_batches
from impresslearn.data.images import image_files
from impresslearn.errors import InputError, MissingDataError, MissingDependencyError
from impresslearn.streams import from_folder, split_imagenet
from toys import read_examples, read_inputs

Image = pytest.importorskip("PIL.Image")
GENERATOR = np.random.default_rng(0)
WAYS = {
    "as_examples": lambda root: as_examples(root / "task" / "train"),
    "examples": lambda root: read_examples(root / "task" / "train"),
    "inputs": lambda root: read_inputs(root / "task" / "train" / "ant"),
    "from_folder": lambda root: from_folder(root)[0].train,
    "imagenet": lambda root: split_imagenet(root / "task", classes_per_task=2, size=5)[0].train,
}
LABELLED = [way for way in WAYS if way != "inputs"]


def pixels(height=5, width=5, channels=3):
    return GENERATOR.integers(0, 256, (height, width, channels)).astype(np.uint8).squeeze()


def save(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    (values if isinstance(values, Image.Image) else Image.fromarray(values)).save(path)
    return path


def read(path):
    """(h, w, 3) uint8, as the reader gives it."""
    return image_files([path])[0][0].permute(1, 2, 0).numpy()


def scaled(*images):
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 255


def refused(read, path, match, error=InputError, **settings):
    with pytest.raises(error, match=match) as caught:
        read(path, **settings)
    assert "\n" not in str(caught.value)


@pytest.fixture
def root(tmp_path):
    """A task of two classes, an image each; "ant" comes first."""
    for part in ("train", "val", "test"):
        for name in ("ant", "bee"):
            save(tmp_path / "task" / part / name / "0.png", pixels())
    return tmp_path


@pytest.fixture
def train(root):
    return root / "task" / "train"


@pytest.mark.parametrize("way", WAYS)
def test_pixels_of_images_only_and_no_hidden_ones(root, train, way):
    (train / "ant" / "._0.png").write_bytes(b"no image")
    (train / "ant" / "notes.txt").write_text("no image")
    save(train / "cover.png", pixels())
    (train / ".cache").mkdir()
    (train / ".cache" / "0.png").write_bytes(b"no image")
    found = WAYS[way](root)
    assert len(found) == (1 if way == "inputs" else 2)
    assert found.pixels
    if way != "inputs":
        assert found.labels.tolist() == ["ant", "bee"]
    if way != "imagenet":
        assert torch.equal(found.inputs[:1], scaled(read(train / "ant" / "0.png")))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", ["16 bits", "bomb", "damaged", "no image", "empty"])
def test_every_error_names_the_file(root, train, way, fault, monkeypatch):
    path = train / "ant" / "0.png"
    if fault == "16 bits":
        save(path, np.full((5, 5), 300, np.uint16))
    elif fault == "bomb":
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    else:
        contents = {"no image": b"no image", "empty": b"", "damaged": path.read_bytes()[:50]}
        path.write_bytes(contents[fault])
    refused(WAYS[way], root, "0.png")


@pytest.mark.parametrize("way", LABELLED)
def test_folders_without_images(root, train, way, tmp_path):
    (train / "cow").mkdir()
    refused(WAYS[way], root, r"no image below .*cow; expected .*/CLASS/IMAGE files")


def test_other_folders_and_files(root, train):
    refused(as_examples, root / "nowhere", "no image folder at .*nowhere", MissingDataError)
    (root / "table.csv").write_text("1,2")
    refused(as_examples, root / "table.csv", "table.csv is a file; .*, or read it with FileReader")
    refused(read_inputs, train, "no image in .*; its sub-folders are not searched")
    refused(read_examples, train / "ant", "no image below")
    refused(read_examples, train / "ant" / "0.png", "cannot read .*0.png; expected an image folder")


@pytest.mark.skipif(os.name != "posix", reason="names of any bytes are posix's")
@pytest.mark.parametrize("way", ["as_examples", "examples", "from_folder"])
def test_a_class_folder_whose_name_is_no_text_is_refused(root, train, way):
    (train / "bee").rename(train / os.fsdecode(b"b\xff"))
    refused(WAYS[way], root, "no valid Unicode|which train lacks")


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "LA", "1", "CMYK"])
def test_every_mode_is_read_as_rgb(tmp_path, mode):
    image = Image.fromarray(pixels()).convert(mode)
    path = save(tmp_path / ("a.TIF" if mode == "CMYK" else "a.png"), image)
    assert (read(path) == np.array(image.convert("RGB"))).all()


def test_transparency_is_dropped(tmp_path):
    colour, path = pixels(), tmp_path / "a.png"
    save(path, np.dstack([colour, np.zeros((5, 5), np.uint8)]))
    assert (read(path) == colour).all()
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
    whole = Image.fromarray(pixels(*shape))
    path = save(tmp_path / "a.png", whole)
    scale = side / min(shape)
    width, height = (max(side, round(length * scale)) for length in whole.size)
    left, top = (width - side) // 2, (height - side) // 2
    resized = whole.resize((width, height), Image.Resampling.BILINEAR)
    expected = np.array(resized.crop((left, top, left + side, top + side)))
    given = image_files([path], Preprocessing(size=side))[0][0].permute(1, 2, 0).numpy()
    assert np.abs(given.astype(int) - expected).max() <= 1


def test_long_and_narrow_images_take_no_more_memory_than_what_is_kept(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (60_000, 1), (9, 9, 9)).save(path)
    images = image_files([path], Preprocessing(size=224))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert torch.equal(images[0][0], torch.full((3, 224, 224), 9, dtype=torch.uint8))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "9", 8193])
def test_sizes_out_of_range(train, size):
    match = "size must be a whole number of pixels from 1 to 8192"
    refused(read_inputs, train / "ant" / "0.png", match, size=size)


def test_names_follow_the_files(tmp_path):
    first, second = pixels(), pixels()
    save(tmp_path / "b.png", first)
    save(tmp_path / "a.BMP", second)
    save(tmp_path / "sub" / "c.png", first)
    assert read_inputs(tmp_path / "b.png").names == ("b.png",)
    both = read_inputs(str(tmp_path))
    assert both.names == ("a.BMP", "b.png")
    assert torch.equal(both.inputs, scaled(second, first))


def test_grey_where_the_shape_asks_for_one_number_a_pixel(tmp_path):
    grey = pixels(5, 4, 1)
    path = save(tmp_path / "a.png", grey)
    for shape in ((1, 5, 4), (5, 4), (20,)):
        expected = (torch.from_numpy(grey) / 255).reshape(1, *shape)
        assert torch.equal(read_inputs(path, shape=shape).inputs, expected)
    assert read_inputs(path, shape=(3, 5, 4)).inputs.shape == (1, 3, 5, 4)
    assert read_inputs(path, shape=(1, 4, 4), size=4).inputs.shape == (1, 1, 4, 4)
    refused(read_inputs, path, "a.png: inputs of shape .* cannot", shape=(1, 8, 8))
    colour = Image.fromarray(pixels(5, 4))
    found = read_inputs(save(path, colour), shape=(5, 4)).inputs[0]
    assert torch.equal(found, torch.from_numpy(np.array(colour.convert("L"))) / 255)


@pytest.mark.parametrize("workers", [0, 1])
def test_large_folders_are_streamed_alike(train, workers):
    settings = {"shape": (1, 5, 5), "mean": 0.5, "std": 0.25}
    held = read_examples(train, **settings)
    streamed = read_examples(train, **settings, memory_limit=100, workers=workers)
    assert isinstance(streamed, StreamedExamples)
    assert streamed.labels.tolist() == held.labels.tolist()
    batches = to_batches(streamed, ("ant", "bee"), torch.device("cpu")).batches(4)
    assert torch.equal(torch.cat([inputs for inputs, _ in batches]), held.inputs)
    match = "the 1 images of .* limit of 100 bytes"
    refused(read_inputs, train / "ant", match, memory_limit=100)


def test_images_of_several_sizes(train):
    save(train / "bee" / "1.png", pixels(7, 4))
    match = "1.png has 4x7 pixels, the first image 5x5; give a size"
    refused(read_examples, train, match)
    refused(read_inputs, train / "bee", match)
    assert read_examples(train, size=4).inputs.shape == (3, 3, 4, 4)
    streamed = read_examples(train, memory_limit=0, workers=1)
    source = to_batches(streamed, ("ant", "bee"), torch.device("cpu"))
    refused(lambda size: list(source.batches(size)), 6, match)


def test_pillow_is_asked_for_only_where_images_are(train, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    for read, path in (
        (read_examples, train),
        (read_inputs, train / "ant" / "0.png"),
        (as_examples, train),
    ):
        refused(read, path, r"pip install 'impresslearn\[vision\]'", MissingDependencyError)


@pytest.mark.slow
def test_without_pillow_other_files_can_be_read():
    code = "import sys; sys.modules['PIL'] = None; import impresslearn.data.files"
    subprocess.run([sys.executable, "-c", code], check=True)
