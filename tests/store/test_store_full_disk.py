"""A full disk: one clear error, nothing changed, and learning goes on once there is room."""

import subprocess
import sys

import pytest
from storekit import digest, small_learner

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import compact_store
from toys import blobs, quick_learner


@pytest.fixture
def disk(tmp_path):
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk, leave=0):
    """Takes all room but `leave` bytes; returns the file that takes it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(max(0, ballast.stat().st_size - leave))
    return ballast


@pytest.mark.parametrize("leave", [0, 4096, 8192, 12288, 20480, 32768, 40960])
def test_learning_on_a_full_disk(disk, leave):
    path = disk / "a.impress"
    small_learner().save(path)
    with il.open_store(path, progress=False) as learner:
        learner.learn_task("before", blobs(3))
        expected = {name: digest(learner, name) for name in learner.tasks_}
        masks = len(learner.bank_)
        ballast, committed = fill(disk, leave), 0

        def learn_on():
            nonlocal committed, masks
            for number in range(500):
                verb = learner.learn_basis if number % 2 else learner.learn_task
                verb(f"new-{number}", blobs(number))
                expected[f"new-{number}"] = digest(learner, f"new-{number}")
                committed, masks = number + 1, masks + number % 2

        with pytest.raises(il.StoreError) as caught:
            learn_on()
        assert str(caught.value).count("\n") == 0
        assert "the disk is full" in str(caught.value)
        assert len(learner.bank_) == masks
        assert {name: digest(learner, name) for name in learner.tasks_} == expected
        ballast.unlink()
        learner.learn_basis(f"new-{committed}", blobs(committed))
        expected[f"new-{committed}"] = digest(learner, f"new-{committed}")
    assert verify_store(path) == {"tasks": len(expected), "masks": masks + 1}
    learner = il.load(path)
    assert {name: digest(learner, name) for name in learner.tasks_} == expected


@pytest.mark.parametrize("leave", [0, 4096, 8192, 20480, 40960, 49152, 53248])
def test_saving_on_a_full_disk(disk, leave):
    path, other = disk / "a.impress", disk / "b.impress"
    small_learner().save(path)
    before = path.read_bytes()
    larger = quick_learner(il.create_backbone("lenet_300_100", 3, in_features=16, widths=[200, 90]))
    ballast = fill(disk, leave)
    for target in (path, other):
        with pytest.raises(il.StoreError, match=f"cannot write {target}: the disk is full"):
            larger.save(target, overwrite=True)
    assert path.read_bytes() == before
    assert {file.name for file in disk.iterdir()} == {"a.impress", "ballast"}
    ballast.unlink()
    larger.save(path, overwrite=True)
    verify_store(path)


def test_compacting_on_a_full_disk(disk):
    path = disk / "a.impress"
    learner = small_learner()
    learner.save(path)
    ballast = fill(disk)
    try:
        compact_store(path)
    except il.StoreError as error:
        assert "full" in str(error) or "error" in str(error)  # noqa: PT017
    ballast.unlink()
    assert verify_store(path)["tasks"] == 3
    assert digest(il.load(path), "first") == digest(learner, "first")


def test_reading_where_nothing_can_be_written(disk):
    path = disk / "a.impress"
    learner = small_learner()
    learner.save(path)
    bound = il.open_store(path, progress=False)
    (disk / "copy.impress").write_bytes(path.read_bytes())  # in the mode that has a log
    bound.close()
    mount = ["mount", "-o", "remount,ro", str(disk)]
    assert subprocess.run(mount, capture_output=True).returncode == 0
    for file in (path, disk / "copy.impress"):
        assert digest(il.load(file), "first") == digest(learner, "first")
        with il.open_store(file, readonly=True) as reader:
            assert digest(reader, "first") == digest(learner, "first")
        with pytest.raises(il.StoreError, match="open it with readonly=True"):
            il.open_store(file)
        with pytest.raises(il.StoreError, match=f"cannot write {file}"):
            learner.save(file, overwrite=True)
