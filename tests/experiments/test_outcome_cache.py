"""Outcomes on disk: whole, or worked out again."""

from __future__ import annotations

import errno
import multiprocessing
import os
from threading import Thread

import pytest
from filelock import FileLock, Timeout
from odd_targets import mark

from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.experiments.cache import Cache, work_on
from impresslearn.experiments.executors import Workers, run_jobs
from impresslearn.experiments.jobs import Job, Outcome, Place
from impresslearn.experiments.record import check_folder

JOB = Job(mark, {"number": 3})
USER = Job(mark, {"number": 4}, (JOB,))
OUTCOME = Outcome({"task": "3", "total": 3}, bytes([3]) * 99, 0.5)


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


def files(cache: Cache) -> dict[str, os.PathLike]:
    return {path.suffix: path for path in cache.folder.glob("??/*")}


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def test_what_is_put_comes_back(cache):
    assert JOB not in cache
    assert not cache.folder.exists(), "a look changes nothing"
    cache.put(JOB, OUTCOME)
    assert cache.get(JOB) == OUTCOME
    assert JOB in cache
    user = Outcome({"name": "Müller, α \udcff", "list": [1, 2.5, None, True]}, None, 1.25)
    cache.put(USER, user)
    assert cache.get(USER) == user
    assert cache.seconds([JOB, USER, Job(mark, {"number": 9})]) == 1.75
    assert not list(cache.folder.glob("??/.*"))


def changed(before: bytes, after: bytes):
    return ".json", lambda content: content.replace(before, after)


DAMAGE = {
    "truncated values": (".json", lambda content: content[:-20]),
    "a value that is no number": changed(b'"total": 3', b'"total": NaN'),
    "no time": changed(b'"seconds": 0.5', b'"seconds": null'),
    "no blob said": changed(b'"blob": "', b'"blob": 5, "b": "'),
    "too deep": (".json", lambda content: b"[" * 100_000),
    "lost values": (".json", None),
    "a flipped bit": (".bin", lambda content: flipped(content, 50)),
    "a truncated blob": (".bin", lambda content: content[:-1]),
    "a lost blob": (".bin", None),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_counts_as_missing_and_is_repaired(cache, tmp_path, damage):
    suffix, change = DAMAGE[damage]
    cache.put(JOB, OUTCOME)
    path = files(cache)[suffix]
    content = path.read_bytes()
    path.unlink()
    if change is not None:
        assert change(content) != content
        path.write_bytes(change(content))
    assert cache.get(JOB) is None
    assert JOB not in cache
    cache.put(USER, Outcome({"task": "4", "total": 7}, None, 0.1))  # a user that is kept already
    place = Place(str(tmp_path))
    with Workers(1) as workers:
        found = run_jobs([USER, JOB], cache, place, workers)
    assert [outcome.values["total"] for outcome in found] == [7, 3]
    assert cache.get(JOB).blob == OUTCOME.blob


def test_every_flipped_bit_of_the_values_is_noticed_or_harmless(cache):
    cache.put(JOB, OUTCOME)
    path = files(cache)[".json"]
    content = path.read_bytes()
    for position in range(len(content)):
        path.write_bytes(flipped(content, position))
        found = cache.get(JOB)
        assert found is None or (found.values, found.blob) == (OUTCOME.values, OUTCOME.blob)


def test_a_need_that_vanished_says_so(cache, tmp_path):
    with pytest.raises(ImpressLearnError, match=r"the outcome of mark job \w{8} \(.*run again"):
        work_on(USER, cache, Place(str(tmp_path)))
    assert not (tmp_path / "marks").exists()


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("place", ["lock", "rename"])
def test_a_full_disk_gives_one_line(cache, tmp_path, monkeypatch, place):
    owner, name = {"lock": (FileLock, "_acquire"), "rename": (os, "replace")}[place]
    monkeypatch.setattr(owner, name, full)
    with pytest.raises(
        InputError, match=r"^cannot write to the cache .*: No space left on device$"
    ):
        work_on(JOB, cache, Place(str(tmp_path)))
    assert not [path for path in cache.folder.glob("??/*") if path.is_file()]
    monkeypatch.undo()
    assert work_on(JOB, cache, Place(str(tmp_path))).values["total"] == 3


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(InputError, match=r"cannot write to the cache .*: Not a directory"):
        work_on(JOB, Cache(tmp_path / "cache"), Place(str(tmp_path)))
    with pytest.raises(InputError, match=r"cannot write to .*cache: File exists"):
        check_folder(tmp_path / "cache")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(cache, tmp_path):
    cache.put(JOB, OUTCOME)
    for folder in (cache.folder / JOB.key[:2], cache.folder):
        folder.chmod(0o500)
    try:
        assert cache.get(JOB) == OUTCOME
        with pytest.raises(InputError, match=r"cannot write to the cache .*: Permission denied"):
            work_on(USER, cache, Place(str(tmp_path)))
    finally:
        cache.folder.chmod(0o700)


@pytest.mark.parametrize("device", ["cuda:99", "toaster"])
def test_a_device_that_is_not_there(tmp_path, device):
    with pytest.raises(InputError, match=f"device '{device}' cannot be used: "):
        Cache(tmp_path, device)


def claim_and_die(folder: str) -> None:
    with Cache(folder).claim(JOB):
        os._exit(9)


def test_claims_exclude_and_end_with_their_process(cache, tmp_path):
    with cache.claim(JOB), cache.claim(USER, 0), pytest.raises(Timeout), cache.claim(JOB, 0):
        pass
    process = multiprocessing.get_context("spawn").Process(
        target=claim_and_die, args=(str(tmp_path / "cache"),)
    )
    process.start()
    process.join()
    assert process.exitcode == 9
    with cache.claim(JOB, 0):
        pass


def test_a_worker_waits_for_another_and_takes_its_outcome(cache, tmp_path):
    found = []
    with cache.claim(JOB):
        thread = Thread(target=lambda: found.append(work_on(JOB, cache, Place(str(tmp_path)))))
        thread.start()
        cache.put(JOB, OUTCOME)
    thread.join(30)
    assert found == [OUTCOME]
    assert not (tmp_path / "marks").exists()
