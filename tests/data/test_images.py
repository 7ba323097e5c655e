"""Image folders of the API, of files and of streams go through one reader."""

import os

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from impresslearn.data import Preprocessing, StreamedExamples, as_examples, to_batches
from impresslearn.data.images import ImageFiles
from impresslearn.networks import create_backbone
from impresslearn.streams import from_arrays
from toys import quick_learner, read_examples, read_inputs, refused

Image = pytest.importorskip("PIL.Image")
GENERATOR = np.random.default_rng(0)
WAYS = {
    "as_examples": lambda root: as_examples(root / "task" / "train"),
    "examples": lambda root: read_examples(root / "task" / "train"),
    "inputs": lambda root: read_inputs(root / "task" / "train" / "ant"),
    "from_arrays": lambda root: from_arrays({"a": [root / "task" / "train"] * 2})[0].train,
}


class Items(list, Dataset):
    """Pairs of an image of Pillow and its label."""


def pixels(height=5, width=5, channels=3):
    return GENERATOR.integers(0, 256, (height, width, channels)).astype(np.uint8).squeeze()


def save(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    (values if isinstance(values, Image.Image) else Image.fromarray(values)).save(path)
    return path


def read(path, size=None):
    """(h, w, 3) uint8, as the reader gives it."""
    return ImageFiles([path], Preprocessing(size=size))[0][0].permute(1, 2, 0).numpy()


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
    for hidden in (train / "cover.png", train / ".cache" / "0.png"):
        save(hidden, pixels())
    found = WAYS[way](root)
    assert found.pixels
    assert found.labels.tolist() == (["0.png"] if way == "inputs" else ["ant", "bee"])
    expected = torch.from_numpy(read(train / "ant" / "0.png")).permute(2, 0, 1) / 255
    assert torch.equal(found.inputs[0], expected)


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
    refused("0.png", WAYS[way], root)


def test_folders_and_files_that_cannot_be_used(root, train):
    refused("cannot read .*0.png; expected an image fo", read_examples, train / "ant" / "0.png")
    (train / "bee").rename(train / os.fsdecode(b"b\xff"))
    refused("no valid Unicode", read_examples, train)
    (train / "cow").mkdir()
    for way in WAYS.keys() - {"inputs"}:
        refused(r"no image in .*cow itself; expected .*/CLASS/IMAGE files", WAYS[way], root)


def test_files_that_are_left_out_are_counted(root, train):
    (train / "ant" / "notes.txt").write_text("no image")
    with pytest.warns(UserWarning, match=r"1 entries of .*ant are not image files \(notes.txt\)"):
        as_examples(train)
    (train / "bee" / "deep").mkdir()
    with pytest.warns(UserWarning, match=r"1 entries of .*bee are not image files \(deep\)"):
        as_examples(train)
    for file in (train / "ant").glob("*.png"):
        file.rename(file.with_suffix(".xyz"))
    refused(r"no image in .*ant itself; .* are not image files", as_examples, train)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "LA", "1", "CMYK"])
def test_every_mode_is_read_as_rgb_without_transparency(tmp_path, mode):
    image = Image.fromarray(pixels()).convert(mode)
    if mode in ("RGBA", "LA"):
        image.putalpha(0)
    path = tmp_path / ("a.TIF" if mode == "CMYK" else "a.png")
    image.save(path, **{"transparency": bytes(range(25))} if mode == "P" else {})
    assert (read(path) == np.array(image.convert("RGB"))).all()


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
def test_images_are_turned_as_their_camera_was_held(tmp_path, suffix):
    upright = Image.fromarray(np.repeat(np.arange(8, dtype=np.uint8) * 30, 64).reshape(8, 64))
    path = tmp_path / f"a.{suffix}"
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn clockwise
    upright.transpose(Image.Transpose.ROTATE_90).save(path, exif=exif)
    assert np.abs(read(path)[..., 0].astype(int) - np.array(upright)).max() <= 3


@pytest.mark.parametrize("shape", [(20, 32), (32, 20), (4, 200)])
def test_the_centre_square_is_kept(tmp_path, shape):
    values = pixels(*shape)
    height, width = shape
    side = min(shape)
    top, left = (height - side) // 2, (width - side) // 2
    centre = values[top : top + side, left : left + side]
    path = save(tmp_path / "a.png", values)
    assert (read(path, size=side) == centre).all()
    half = Image.fromarray(centre).resize((side // 2, side // 2), Image.Resampling.BILINEAR)
    error = np.abs(read(path, size=side // 2).astype(int) - np.array(half))
    assert error[1:-1, 1:-1].max(initial=0) <= 1


def test_grey_where_the_shape_asks_for_one_number_a_pixel(tmp_path):
    colour = Image.fromarray(pixels(5, 4))
    path = save(tmp_path / "a.png", colour)
    grey = torch.from_numpy(np.array(colour.convert("L"))) / 255
    for shape in ((1, 5, 4), (5, 4), (20,)):
        prepared = Preprocessing(shape).apply_to(read_inputs(path, shape=shape))
        assert torch.equal(prepared.inputs, grey.reshape(1, *shape))
    assert read_inputs(path, shape=(1, 4, 4), size=4).inputs.shape == (1, 1, 4, 4)


@pytest.mark.parametrize("workers", [0, 1])
def test_large_folders_are_streamed_alike(train, workers):
    held = as_examples(train)
    streamed = as_examples(train, memory_limit=100, workers=workers)
    assert isinstance(streamed, StreamedExamples)
    assert streamed.labels.tolist() == held.labels.tolist()
    batches = to_batches(streamed, ("ant", "bee"), torch.device("cpu")).batches(4)
    assert torch.equal(torch.cat([inputs for inputs, _ in batches]), held.inputs)


def test_images_of_several_sizes(train):
    save(train / "bee" / "1.png", pixels(7, 4))
    for read_them, place in ((read_examples, train), (read_inputs, train / "bee")):
        refused("1.png has 4x7 pixels, the first image 5x5; give one size", read_them, place)
    assert read_examples(train, size=4).inputs.shape == (3, 3, 4, 4)


def test_images_of_pillow_are_read_as_their_files_are(train):
    save(train / "bee" / "1.png", pixels(7, 4))
    files = sorted(train.rglob("*.png"))
    labels, shown = [file.parent.name for file in files], [Image.open(file) for file in files]
    for shape in ((3, 4, 4), (1, 4, 4)):
        backbone = create_backbone("lenet_300_100", num_classes=2, in_features=16 * shape[0])
        settings = {"preprocessing": Preprocessing(shape=shape, size=4)}
        learner = quick_learner(backbone, **settings).add_random_masks(2)
        learner.learn_task("insects", train).update_task("insects", train)
        assert learner.tasks_["insects"].version == 2
        held = learner.logits(read_examples(train, shape=shape, size=4).inputs, "insects")
        assert torch.equal(learner.logits(shown, "insects"), held)
        torch.testing.assert_close(learner.logits(shown[0], "insects"), held[:1])
        items = Items([*zip(shown, labels, strict=True)])
        assert learner.score((shown, labels), "insects") == learner.score(items, "insects")
