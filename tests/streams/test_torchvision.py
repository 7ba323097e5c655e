"""torchvision is imported whatever its build, and its data sets are read or said to be missing."""

import importlib.util
import pickle
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from impresslearn.errors import MissingDataError, MissingDependencyError
from impresslearn.streams import import_torchvision, rotated_mnist
from impresslearn.streams.torchvision import load_cifar100, load_mnist
from toys import in_a_new_process, refused

needs_torchvision = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed"
)


@pytest.fixture
def no_network(monkeypatch):
    def unreachable(*args, **kwargs):
        raise URLError("no route to host")

    for name in ("mnist", "cifar"):
        module = import_torchvision(f"torchvision.datasets.{name}")
        monkeypatch.setattr(module, "download_and_extract_archive", unreachable)


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


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ModuleNotFoundError("gone", name="torchvision"), r"pip install 'impresslearn\[vision\]'"),
        (RuntimeError("bad build"), "cannot be imported: bad build"),
    ],
)
def test_what_stops_its_import_is_told_in_one_line(fault, message, monkeypatch, tmp_path):
    def fail(name):
        raise fault

    monkeypatch.setattr(importlib, "import_module", fail)
    refused(message, rotated_mnist, root=tmp_path, error=MissingDependencyError)


@needs_torchvision
@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("load", [load_mnist, load_cifar100])
def test_absent_data_say_where_they_were_looked_for_and_what_to_do(load, tmp_path):
    folder = tmp_path / ("MNIST/raw" if load is load_mnist else "cifar-100-python")
    advice = {False: "or pass download=True$", True: "no route to host.*: put its files there"}
    for download, hint in advice.items():
        refused(f"{folder}.*{hint}", load, tmp_path, download, error=MissingDataError)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{name}-ubyte").write_bytes(b"\0\0\x08\x01 too short")
    refused("no usable .* in", load, tmp_path, True, error=MissingDataError)


@pytest.mark.usefixtures("no_network")
def test_a_local_copy_needs_no_network(mnist_root):
    train, _ = load_mnist(mnist_root, download=True)
    assert train.images.shape == (60_000, 1, 28, 28)


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
    train, test = load_cifar100(tmp_path, download=False)
    assert train.images[:, :, 0, 1].tolist() == pixels[:, [1, 1025, 2049]].tolist()
    assert test.labels.tolist() == ["class-7", "class-3"]
