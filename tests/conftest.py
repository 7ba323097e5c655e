"""Fixtures that several test folders share: the real data sets, unpacked at most once a session.

A test that asks for one of them carries the marker `data`, and is skipped with a reason where the
data are not there.
"""

import importlib.util
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PREPARE = Path(__file__).resolve().parents[2] / "shared" / "data" / "prepare.py"
DATA_FIXTURES = {"data_root", "mnist_root", "tiny_imagenet_root", "records_root"}

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a suite in the background
    # Commands that tests interrupt would inherit it and go on.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if DATA_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.data)


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that the other fixtures unpack into; removed when the session ends."""
    if not PREPARE.is_file():
        pytest.skip("the real data sets are not beside this checkout (../shared/data)")
    root = tmp_path_factory.mktemp("data")
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def mnist_root(data_root: Path) -> Path:
    """ROOT/MNIST/raw with the four files of MNIST."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    return _prepared(data_root, "mnist")


@pytest.fixture(scope="session")
def tiny_imagenet_root(data_root: Path) -> Path:
    """ROOT/{train,val}/CLASS/*.JPEG: 40 classes of Tiny-ImageNet at 64x64."""
    return _prepared(data_root, "tiny-imagenet") / "tiny-imagenet-64"


@pytest.fixture(scope="session")
def records_root(data_root: Path) -> Path:
    """What the records that are run again were measured on."""
    for name in ("clinc150", "cifar100", "resnet20-cifar10"):
        _prepared(data_root, name)
    return data_root


def _prepared(root: Path, name: str) -> Path:
    done = subprocess.run(
        [sys.executable, str(PREPARE), str(root), name], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"{PREPARE.name} {name} failed: {done.stderr.strip()}")
    return root
