"""Rotated and permuted digits and MNIST, split CIFAR-100, and what torchvision reads of them."""

import importlib.util
import pickle
from functools import partial
from pathlib import Path
from unittest.mock import Mock
from urllib.error import URLError

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from impresslearn import checks
from impresslearn.errors import MissingDataError, MissingDependencyError
from impresslearn.streams import (
    import_torchvision,
    permuted_digits,
    permuted_mnist,
    rotated_digits,
    rotated_mnist,
    split_cifar100,
    standard,
)
from impresslearn.streams.standard import DIGITS_MEAN, DIGITS_STD
from impresslearn.streams.torchvision import FOLDERS, load_images
from toys import cifar_arrays, in_a_new_process, refused


@pytest.mark.parametrize("data", ["digits", "mnist"])
def test_tasks_show_the_same_images_rotated_or_permuted(data, request):
    rotated, permuted, settings = rotated_digits, permuted_digits, {"seed": 5}
    if data == "mnist":
        rotated, permuted = rotated_mnist, permuted_mnist
        settings |= {"root": request.getfixturevalue("mnist_root")}
    turned = rotated(angles=[0, 90, 45], **settings)
    # The test images of MNIST are moved like its training images, in a sixth of the time.
    part = {"digits": "train", "mnist": "test"}[data]
    upright, quarter, slanted = (getattr(task, part).inputs[:100] for task in turned)
    if data == "mnist":
        assert turned[0].train.labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
        assert abs(turned[0].train.inputs.std() - 1) < 1e-3
    assert (turned.name, turned.names[1]) == (f"rotated_{data}", "rotated-90")
    assert (turned[1].settings, turned[0].classes) == ({"angle": 90}, tuple(range(10)))
    torch.testing.assert_close(quarter, torch.rot90(upright, 1, (-2, -1)), atol=1e-4, rtol=0)
    assert slanted[:, 0, 0, 0].unique() == upright.min()  # black before it is normalised
    assert np.array_equal(turned[0].test.labels, turned[1].test.labels)
    few, many = permuted(tasks=2, **settings), permuted(**settings)
    assert len(many) == {"digits": 15, "mnist": 110}[data]
    assert many.names[:2] == few.names == ("permuted-0", "permuted-1")
    first, second = (getattr(task, part).inputs[:100] for task in few)
    assert torch.equal(second, getattr(many[1], part).inputs[:100])
    assert not torch.equal(first, second)
    other = getattr(permuted(tasks=1, **settings | {"seed": 6})[0], part).inputs[:100]
    assert not torch.equal(other.sum(0), first.sum(0))
    for moved in (first, second):
        assert (moved != upright).any()
        pixels = (each.flatten(1).sort().values for each in (moved, upright))
        torch.testing.assert_close(*pixels, atol=1e-4, rtol=0)


def test_a_quarter_of_the_digits_is_the_stratified_test_set():
    task = rotated_digits(angles=[0])[0]
    parts = [task.train, task.test]
    assert [len(part) for part in parts] == [1348, 449]
    scaled = torch.cat([part.inputs for part in parts]).flatten(1) * DIGITS_STD[0] + DIGITS_MEAN[0]
    pixels = scaled.mul(16).round().int()
    everything = load_digits().data.astype(int)
    assert sorted(map(tuple, pixels.tolist())) == sorted(map(tuple, everything.tolist()))
    assert np.bincount(task.test.labels).min() >= 43
    assert rotated_digits(tasks=3).names == ("rotated-204", "rotated-24", "rotated-114")


NAMES = tuple(f"class-{i:02d}" for i in range(100))


@pytest.fixture
def toy_cifar(tmp_path):
    """A root with a subset of CIFAR-100."""
    np.savez(tmp_path / "cifar100-subset.npz", **cifar_arrays())
    return partial(split_cifar100, root=tmp_path, subset=True)


def test_tasks_of_cifar_have_disjoint_named_classes_and_their_own_images(toy_cifar):
    stream = toy_cifar()
    assert (len(stream), stream.names[:2]) == (20, ("cifar100-00", "cifar100-01"))
    assert sorted(name for task in stream for name in task.classes) == sorted(NAMES)
    task = stream[3]
    assert sorted(task.settings["classes"]) == list(task.classes)
    mean, std = torch.tensor(standard.CIFAR_MEAN), torch.tensor(standard.CIFAR_STD)
    for image, label in zip(task.train.inputs, task.train.labels, strict=True):
        grey = 2 * NAMES.index(label) / 255
        torch.testing.assert_close(image[:, 5, 7], (grey - mean) / std)
        assert (image[:, 2, 9] > 0).tolist() == [False, True, False]
    assert task.train.augment is not None
    assert task.test.augment is toy_cifar(augment=False)[0].train.augment is None
    assert toy_cifar(tasks=2)[1].classes == stream[1].classes
    assert toy_cifar(seed=1)[1].classes != stream[1].classes


def test_classes_and_normalisation_may_be_those_of_a_pretrained_network(toy_cifar):
    order = [32, 6, 97, 84, 0, 44]
    chosen = {"classes_per_task": 3, "classes": order, "mean": [0.5, 0.25, 0.5], "std": [2, 2, 4]}
    first, second = toy_cifar(tasks=2, **chosen)
    assert first.settings["classes"] == [NAMES[place] for place in (32, 6, 97)]
    assert second.classes == (NAMES[0], NAMES[44], NAMES[84])
    grey = 2 * 6 / 255
    expected = torch.tensor([(grey - 0.5) / 2, (grey - 0.25) / 2, (grey - 0.5) / 4])
    torch.testing.assert_close(first.test.inputs[0][:, 5, 7], expected)


def test_other_archives_of_cifar_are_refused(toy_cifar, tmp_path):
    assert toy_cifar()[0].settings["subset"] is True
    path = tmp_path / "cifar100-subset.npz"
    for arrays, line in (
        ({"train_images": np.zeros((400, 9), np.uint8)}, "must be an archive of"),
        ({"train_labels": np.arange(400) % 7}, "need 100 classes, got 7"),
    ):
        np.savez(path, **cifar_arrays() | arrays)
        refused(line, toy_cifar)
    path.write_bytes(b"PK\x03\x04 broken")
    refused("must be an archive of", toy_cifar)


needs_torchvision = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed"
)


@pytest.mark.nightly
@needs_torchvision
def test_torchvision_imports_even_where_its_operators_do_not_match_torch():
    code = """
import gc, torch
from impresslearn.streams import import_torchvision
datasets = import_torchvision("torchvision.datasets")
assert import_torchvision("torchvision.datasets") is datasets
gc.collect()
torch.ops.torchvision.nms
import torchvision
torchvision.extension, torchvision._meta_registrations
from torchvision.models import resnet18
from torchvision.transforms import v2
assert torchvision.datasets is datasets
"""
    in_a_new_process("-c", code)


def test_what_stops_its_import_is_told_in_one_line(monkeypatch, tmp_path):
    for fault, message in (
        (ModuleNotFoundError("gone", name="torchvision"), r"pip install 'impresslearn\[vision\]'"),
        (RuntimeError("bad build"), "cannot be imported: bad build"),
    ):
        monkeypatch.setattr(checks, "import_module", Mock(side_effect=fault))
        refused(message, rotated_mnist, root=tmp_path, error=MissingDependencyError)


@needs_torchvision
@pytest.mark.parametrize("name", FOLDERS)
def test_absent_data_say_where_they_were_looked_for_and_what_to_do(name, tmp_path, monkeypatch):
    unreachable = Mock(side_effect=URLError("no route to host"))
    for each in ("mnist", "cifar"):
        module = import_torchvision(f"torchvision.datasets.{each}")
        monkeypatch.setattr(module, "download_and_extract_archive", unreachable)
    folder = tmp_path / FOLDERS[name]
    words = f"{folder}.*no route to host.*: put its files there or point root at a copy$"
    refused(words, load_images, name, tmp_path, True, error=MissingDataError)
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{file}-ubyte").write_bytes(b"\0\0\x08\x01 too short")
    refused("no usable .* in", load_images, name, tmp_path, True, error=MissingDataError)


@needs_torchvision
def test_cifar100_is_read_in_its_published_form(tmp_path, monkeypatch):
    pixels = np.arange(2 * 3072, dtype=np.int64).reshape(2, 3072).astype(np.uint8)
    entry = {"data": pixels, "fine_labels": [7, 3], "coarse_labels": [0, 0]}
    names = {"fine_label_names": [f"class-{i}" for i in range(100)]}
    (tmp_path / "cifar-100-python").mkdir()
    for name, content in (("train", entry), ("test", entry), ("meta", names)):
        (tmp_path / "cifar-100-python" / name).write_bytes(pickle.dumps(content))
    module = import_torchvision("torchvision.datasets.cifar")
    monkeypatch.setattr(module, "check_integrity", lambda path, md5: Path(path).is_file())
    train, test = load_images("CIFAR100", tmp_path, download=False)
    assert train.images[:, :, 0, 1].tolist() == pixels[:, [1, 1025, 2049]].tolist()
    assert test.labels.tolist() == ["class-7", "class-3"]
