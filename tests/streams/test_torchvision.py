import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from urllib.error import URLError

import numpy as np
import pytest

import impresslearn
from impresslearn.errors import MissingDataError, MissingDependencyError
from impresslearn.streams import import_torchvision, rotated_mnist
from impresslearn.streams.torchvision import load_cifar100, load_mnist

SOURCE = str(Path(impresslearn.__path__[0]).parent)

needs_torchvision = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed"
)


def unreachable(*args: object, **kwargs: object) -> None:
    raise URLError("no route to host")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mnist", "cifar"):
        module: ModuleType = import_torchvision(f"torchvision.datasets.{name}")
        monkeypatch.setattr(module, "download_and_extract_archive", unreachable)


@pytest.mark.slow
@needs_torchvision
def test_torchvision_imports_even_where_its_operators_do_not_match_torch() -> None:
    code = """
import gc
import torch
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
print(datasets.MNIST.__name__)
"""
    path = os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "MNIST"


def test_missing_torchvision_is_named_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Hiding(), *sys.meta_path])
    with pytest.raises(MissingDependencyError, match=r"pip install 'impresslearn\[vision\]'"):
        rotated_mnist(root=tmp_path)


class _Hiding:
    """An import finder under which torchvision is not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.split(".")[0] == "torchvision":
            raise ModuleNotFoundError("No module named 'torchvision'", name="torchvision")


@pytest.mark.parametrize("reason", [ImportError("no PIL"), RuntimeError("bad build")])
def test_other_import_failures_are_passed_on_in_one_line(
    reason: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> ModuleType:
        raise reason

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(MissingDependencyError, match=f"cannot be imported: {reason}"):
        import_torchvision()


@needs_torchvision
@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("load", [load_mnist, load_cifar100])
def test_absent_data_say_where_they_were_looked_for_and_what_to_do(load, tmp_path: Path) -> None:
    folder = "MNIST/raw" if load is load_mnist else "cifar-100-python"
    with pytest.raises(MissingDataError, match=r"or pass download=True$") as off:
        load(tmp_path, download=False)
    with pytest.raises(
        MissingDataError, match=r"no route to host.*: put its files there"
    ) as failed:
        load(tmp_path, download=True)
    for caught in (off, failed):
        assert str(tmp_path / folder) in str(caught.value)
        assert "\n" not in str(caught.value)


@needs_torchvision
@pytest.mark.usefixtures("no_network")
def test_broken_files_are_missing_data(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (raw / f"{part}-{kind}-ubyte").write_bytes(b"\0\0\x08\x01 too short")
    with pytest.raises(MissingDataError, match="no usable MNIST in"):
        load_mnist(tmp_path, download=True)


@pytest.mark.usefixtures("no_network")
def test_a_local_copy_needs_no_network(mnist_root: Path) -> None:
    raw = load_mnist(mnist_root, download=True)
    assert raw.train_images.shape == (60_000, 28, 28)
    assert raw.test_images.shape == (10_000, 28, 28)
    assert raw.train_images.dtype == np.uint8
    assert raw.train_labels.dtype == np.int64
    assert np.bincount(raw.test_labels).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip


@needs_torchvision
def test_cifar100_is_read_in_its_published_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    names = [f"class-{i}" for i in range(100)]
    pixels = np.arange(2 * 3072, dtype=np.int64).reshape(2, 3072).astype(np.uint8)
    for split in ("train", "test"):
        entry = {"data": pixels, "fine_labels": [7, 3], "coarse_labels": [0, 0]}
        (folder / split).write_bytes(pickle.dumps(entry))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": names}))
    module = import_torchvision("torchvision.datasets.cifar")
    monkeypatch.setattr(module, "check_integrity", lambda path, md5: Path(path).is_file())
    raw = load_cifar100(tmp_path, download=False)
    assert raw.train_images.shape == (2, 32, 32, 3)
    assert raw.train_images[0, 0, 1].tolist() == [pixels[0, 1], pixels[0, 1025], pixels[0, 2049]]
    assert raw.test_labels.tolist() == [7, 3]
    assert raw.class_names[3] == "class-3"
