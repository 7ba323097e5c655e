import subprocess
import sys

import numpy as np
import pytest
import torch

from impresslearn.data import Examples, StreamedExamples, as_examples, data_fingerprint, to_batches
from impresslearn.errors import InputError, MissingDependencyError
from impresslearn.streams import from_folder
from toys import read_examples, read_inputs

Image = pytest.importorskip("PIL.Image")
GENERATOR = np.random.default_rng(0)


def picture(path, size=(5, 4), mode="RGB"):
    """Saves a random image of (height, width) and gives its pixels as RGB."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = GENERATOR.integers(0, 256, (*size, 3)).astype(np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    image.save(path)
    return np.array(image.convert("RGB"))


def folder(root, **settings):
    for name in ("bee", "ant"):
        for number in range(3):
            picture(root / name / f"{number}.png", **settings)
    return root


def scaled(*pixels):
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2) / 255


def refused(read, path, match, error=InputError, **settings):
    with pytest.raises(error, match=match) as caught:
        read(path, **settings)
    assert "\n" not in str(caught.value)


def test_a_class_folder_is_read_as_everywhere(tmp_path):
    folder(tmp_path)
    picture(tmp_path / "cover.png")
    (tmp_path / "ant" / "notes.txt").write_text("no image")
    examples, expected = read_examples(tmp_path), as_examples(tmp_path)
    assert torch.equal(examples.inputs, expected.inputs)
    assert examples.labels.tolist() == expected.labels.tolist() == ["ant"] * 3 + ["bee"] * 3
    assert data_fingerprint(examples) == data_fingerprint(expected)


def test_hidden_files_are_left_out(tmp_path):
    folder(tmp_path)
    (tmp_path / "ant" / "._0.png").write_bytes(b"no image")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "0.png").write_bytes(b"no image")
    assert len(read_examples(tmp_path)) == 6
    assert read_inputs(tmp_path / "ant").names == ("0.png", "1.png", "2.png")


def test_resizing_is_that_of_streams(tmp_path):
    for part in ("train", "test"):
        for name in ("ant", "bee"):
            for number, size in enumerate([(20, 31), (13, 8), (9, 9)]):
                picture(tmp_path / "task" / part / name / f"{number}.png", size=size)
    expected = from_folder(tmp_path, size=9)[0].train
    examples = read_examples(tmp_path / "task" / "train", size=9)
    assert torch.equal(examples.inputs, expected.inputs)
    assert examples.inputs.shape == (6, 3, 9, 9)
    assert read_inputs(tmp_path / "task" / "train" / "ant", size=9).inputs.shape == (3, 3, 9, 9)


def test_one_image_and_a_flat_folder(tmp_path):
    first, second = picture(tmp_path / "b.png"), picture(tmp_path / "a.BMP")
    picture(tmp_path / "sub" / "c.png")
    one = read_inputs(tmp_path / "b.png")
    assert torch.equal(one.inputs, scaled(first))
    assert one.names == ("b.png",)
    both = read_inputs(str(tmp_path))
    assert torch.equal(both.inputs, scaled(second, first))
    assert both.names == ("a.BMP", "b.png")


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "LA", "1", "CMYK"])
def test_every_mode_is_read_as_rgb(tmp_path, mode):
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    pixels = picture(path, mode=mode)
    assert torch.equal(read_inputs(path).inputs, scaled(pixels))


def test_grey_where_the_shape_asks_for_one_number_a_pixel(tmp_path):
    pixels = picture(tmp_path / "a.png", mode="L")[..., 0]
    expected = torch.from_numpy(pixels) / 255
    for shape in ((1, 5, 4), (5, 4), (20,)):
        named = read_inputs(tmp_path / "a.png", shape=shape)
        assert torch.equal(named.inputs, expected.reshape(1, *shape))
    assert read_inputs(tmp_path / "a.png", shape=(3, 5, 4)).inputs.shape == (1, 3, 5, 4)
    assert read_inputs(tmp_path / "a.png", shape=(1, 4, 4), size=4).inputs.shape == (1, 1, 4, 4)
    refused(read_inputs, tmp_path / "a.png", "a.png: inputs of shape .* cannot", shape=(1, 8, 8))
    colour = picture(tmp_path / "b.png")
    grey = np.array(Image.fromarray(colour).convert("L"))
    assert torch.equal(
        read_inputs(tmp_path / "b.png", shape=(5, 4)).inputs[0], torch.from_numpy(grey) / 255
    )


def test_normalisation_by_channel(tmp_path):
    pixels = picture(tmp_path / "a.png")
    named = read_inputs(tmp_path / "a.png", mean=(0.1, 0.2, 0.3), std=2)
    mean = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)
    torch.testing.assert_close(named.inputs, (scaled(pixels) - mean) / 2)


@pytest.mark.parametrize("workers", [0, 1])
def test_large_folders_are_streamed_alike(tmp_path, workers):
    folder(tmp_path)
    settings = {"shape": (1, 5, 4), "mean": 0.5, "std": 0.25}
    held = read_examples(tmp_path, **settings)
    assert isinstance(held, Examples)
    streamed = read_examples(tmp_path, **settings, memory_limit=100, workers=workers)
    assert isinstance(streamed, StreamedExamples)
    assert streamed.labels.tolist() == held.labels.tolist()
    batches = to_batches(streamed, ("ant", "bee"), torch.device("cpu")).batches(4)
    assert torch.equal(torch.cat([inputs for inputs, _ in batches]), held.inputs)
    refused(
        read_inputs, tmp_path / "ant", "the 3 images of .* limit of 100 bytes", memory_limit=100
    )


def test_images_of_several_sizes(tmp_path):
    folder(tmp_path)
    picture(tmp_path / "bee" / "2.png", size=(7, 4))
    match = "2.png has 4x7 pixels, the first image 4x5; give a size"
    refused(read_examples, tmp_path, match)
    refused(read_inputs, tmp_path / "bee", match)
    assert read_examples(tmp_path, size=4).inputs.shape == (6, 3, 4, 4)
    streamed = read_examples(tmp_path, memory_limit=0, workers=1)
    source = to_batches(streamed, ("ant", "bee"), torch.device("cpu"))
    with pytest.raises(InputError, match=match) as caught:
        list(source.batches(6))
    assert "\n" not in str(caught.value)


def test_images_that_cannot_be_read(tmp_path, monkeypatch):
    path = tmp_path / "ant" / "a.png"
    picture(path, size=(50, 50))
    whole = path.read_bytes()
    for content in (
        b"",
        b"no image",
        whole[:60],
        whole[:1000],
        whole[:70] + b"\xff" * 9 + whole[79:],
    ):
        path.write_bytes(content)
        refused(read_inputs, path, "a.png")
        refused(read_inputs, path.parent, "a.png")
        refused(read_examples, tmp_path, "a.png")
    path.write_bytes(whole)
    for size in (0, -1, 2.0, True, "9"):
        refused(read_inputs, path, "size must be a whole number of pixels from 1", size=size)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    refused(read_inputs, path, "a.png has more pixels than can be read safely")


@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.float32])
def test_more_than_8_bits_are_not_cut_off(tmp_path, kind):
    path = tmp_path / "a.tif"
    Image.fromarray(np.full((4, 4), 300, dtype=kind)).save(path)
    refused(read_inputs, path, "a.tif has more than 8 bits a channel")


def test_folders_without_images(tmp_path):
    (tmp_path / "ant").mkdir()
    refused(read_examples, tmp_path, "no image below .*; expected .*/CLASS/IMAGE files")
    refused(read_inputs, tmp_path, "no image in .*; its sub-folders are not searched")
    picture(tmp_path / "ant" / "a.png")
    refused(read_inputs, tmp_path, "no image in .*; its sub-folders are not searched")
    refused(read_examples, tmp_path / "ant", "no image below")
    refused(read_examples, tmp_path / "ant" / "a.png", "cannot read examples from .*a.png; exp")


def test_pillow_is_asked_for_only_where_images_are(tmp_path, monkeypatch):
    folder(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    for read, path in ((read_examples, tmp_path), (read_inputs, tmp_path / "ant" / "0.png")):
        refused(read, path, r"pip install 'impresslearn\[vision\]'", MissingDependencyError)
    code = "import sys; sys.modules['PIL'] = None; import impresslearn.data.files"
    subprocess.run([sys.executable, "-c", code], check=True)
