"""Runs that are killed, interrupted, or lose a worker: nothing kept is lost, nothing lingers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from commands import REAL, finish, marks, members, outcomes, record, run, start, wait_until

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="needs signals and process groups"),
    pytest.mark.slow,
]


def kill_somewhere(process: subprocess.Popen[str], cache: Path, more: int, whole: bool) -> None:
    """Kills the run once it has kept so many more outcomes, and waits for the workers' end."""
    wanted = outcomes(cache) + more
    wait_until(lambda: outcomes(cache) >= wanted or process.poll() is not None, "outcomes")
    time.sleep(random.random() / 5)
    if whole:
        with suppress(ProcessLookupError):  # it was done, and nothing of it was left to kill
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    wait_until(lambda: not members(process.pid), "the end of the workers", 30)
    finish(process)


def test_killed_runs_carry_on_with_the_same_numbers(tmp_path, undisturbed):
    out, cache = tmp_path / "out", tmp_path / "out" / "cache"
    for more, whole in ((1, False), (4, True)):
        process = start("tiny", "--out", out, "--processes", 2)
        kill_somewhere(process, cache, more, whole)
    assert outcomes(cache) >= 5 or (out / "tiny.json").exists()
    status, _, err = run("tiny", "--out", out, "--processes", 2)
    assert (status, err) == (0, "")
    assert record(out / "tiny.json") == undisturbed
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_one_process_gives_the_same_numbers(tmp_path, undisturbed):
    assert run("tiny", "--out", tmp_path, "--processes", 1)[0] == 0
    assert record(tmp_path / "tiny.json") == undisturbed


@pytest.mark.parametrize("end", ["kill", "interrupt"])
def test_kept_outcomes_are_not_worked_out_again(tmp_path, end):
    arguments = ("marks", "--out", tmp_path, "--data", tmp_path, "--processes", 2)
    process = start(*arguments)
    if end == "kill":
        kill_somewhere(process, tmp_path / "cache", 8, whole=True)
    else:
        wait_until(lambda: outcomes(tmp_path / "cache") >= 3, "outcomes")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all of the group
        assert finish(process)[::2] == (130, "")
        assert members(process.pid) == []
    before = marks(tmp_path)
    kept = outcomes(tmp_path / "cache")
    assert 3 <= kept < 24
    assert run(*arguments)[0] == 0
    again = marks(tmp_path)[len(before) :]
    assert sorted(set(before) | set(again)) == list(range(24))
    assert len(again) == 24 - kept


def test_an_interrupt_while_processes_start(tmp_path):
    process = start("marks", "--out", tmp_path, "--data", tmp_path, "--processes", 2)
    wait_until(lambda: len(members(process.pid)) > 2, "workers")
    os.killpg(process.pid, signal.SIGINT)
    status, _, err = finish(process)
    assert (status, err) == (130, "")
    assert members(process.pid) == []


@pytest.mark.parametrize(
    ("target", "says"), [("missing", "MNIST is not in "), ("killed", "a worker process died")]
)
def test_a_job_that_cannot_be_done(tmp_path, target, says):
    arguments = (target, "--out", tmp_path, "--data", tmp_path, "--processes", 2)
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {says}")
    assert err.count("\n") == 1
    before, kept = len(marks(tmp_path)), outcomes(tmp_path / "cache")
    assert not (tmp_path / f"{target}.json").exists()
    (tmp_path / "repaired").touch()
    assert run(*arguments)[0] == 0
    assert len(marks(tmp_path)) - before == 8 - kept


def test_two_runs_share_a_cache_and_the_work(tmp_path):
    common = ("--cache", tmp_path / "cache", "--data", tmp_path, "--processes", 2)
    both = [start("marks", "--out", tmp_path / name, *common) for name in ("one", "two")]
    assert [finish(process)[::2] for process in both] == [(0, ""), (0, "")]
    assert sorted(marks(tmp_path)) == list(range(24)), "each job ran once"
    assert record(tmp_path / "one" / "marks.json") == record(tmp_path / "two" / "marks.json")


def test_ten_kills_of_a_real_target(tmp_path):
    arguments = ("split-imagenet", "--scale", "smoke", "--processes", 2)
    assert run(*arguments, "--out", tmp_path / "quiet", program=REAL)[0] == 0
    out = tmp_path / "killed"
    for kill in range(10):
        process = start(*arguments, "--out", out, program=REAL)
        kill_somewhere(process, out / "cache", random.randrange(4), whole=bool(kill % 2))
    assert run(*arguments, "--out", out, program=REAL)[0] == 0
    quiet, killed = (record(path / "split-imagenet.json") for path in (tmp_path / "quiet", out))
    assert killed == quiet
