"""The jobs that worker processes run on a store; started by `storekit.Workers`."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from storekit import INPUTS, digest, hasty, small_learner, version_digests

import impresslearn as il
from impresslearn.learner.loading import verify_store
from toys import blobs


def learn(report: Any, path: str, prefix: str, count: int | None = None, basis: int = 0) -> None:
    """Learns tasks prefix-0, … and reports what came of each, once it is committed.

    basis: every so many of them are basis tasks.
    """
    with hasty(path) as learner:
        report("open")
        number = 0
        while count is None or number < count:
            name, is_basis = f"{prefix}-{number}", basis and number % basis == 0
            try:
                (learner.learn_basis if is_basis else learner.learn_task)(name, blobs(number))
                report([name, digest(learner, name)])
            except il.InputError as error:
                report([name, "refused", str(error)])
            number += 1


def live(report: Any, path: str, seed: int, count: int) -> None:
    """Learns, updates, restores and removes tasks at random; says what comes next, and what came.

    After each commit it reports the task and the digests of its versions, None where it is gone.
    """
    draw = random.Random(seed)
    with hasty(path) as learner:
        for number in range(count):
            names = [name for name, info in learner.tasks_.items() if info.role == "learned"]
            verb = draw.choice(["learn", "update", "update", "restore", "remove"])
            name = draw.choice(names) if names and verb != "learn" else f"{seed}-{number}"
            versions = learner.tasks_[name].version if name in names else 0
            if verb == "restore" and versions < 2:
                verb = "update" if versions else "learn"
            report([name, verb])
            if versions == 0:
                learner.learn_task(name, blobs(draw.randrange(100)))
            elif verb == "update":
                learner.update_task(name, blobs(draw.randrange(100)))
            elif verb == "restore":
                learner.restore_task(name, draw.randrange(1, versions))
            else:
                learner.remove_task(name)
            report([name, version_digests(learner).get(name)])


def read(report: Any, path: str, stop: str, readonly: bool = False) -> None:
    """Predicts every task it finds, again and again, until a file `stop` is there."""
    with il.open_store(path, progress=False, readonly=readonly, cache_bytes=4000) as learner:
        report("open")
        answers: dict[str, str] = {}
        while not os.path.exists(stop):
            for name in learner.tasks_:
                found = digest(learner, name)
                if answers.setdefault(name, found) != found:
                    report(["changed", name])
                learner.predict(INPUTS, name)
        report(answers)


def verify_again_and_again(report: Any, path: str, stop: str) -> None:
    """Opens a store, predicts all its tasks, and verifies it, until a file `stop` is there."""
    rounds = 0
    while not os.path.exists(stop):
        rounds += 1
        try:
            with il.open_store(path, readonly=rounds % 2 == 0, progress=False) as learner:
                for task in learner.tasks_:
                    digest(learner, task)
        except il.UnknownTaskError:
            pass  # removed since its name was read
        except il.StoreError as error:
            if "masks were removed" not in str(error):  # since it was opened
                raise
        report(verify_store(path))


def judge(report: Any, source: str, folder: str, count: int, verb: str) -> None:
    """Loads or opens damaged copies; reports of each "equal", "different" or the error's line.

    A copy may take seconds of the process's time and little memory, else the process ends.
    """
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 600 * 2**20,) * 2)
    valid, copy = Path(source).read_bytes(), Path(folder) / "copy.impress"
    whole = il.load(source, progress=False)
    expected, names = _observed(whole), list(whole.tasks_)
    for number in range(count):
        for suffix in ("-wal", "-shm", "-journal"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)
        copy.write_bytes(mutant(valid, number))
        signal.alarm(20)
        try:
            if verb == "load":
                found = _observed(il.load(copy, progress=False))
            else:
                with il.open_store(copy) as learner:
                    found = _observed(learner, names)
            report("equal" if found == expected else f"{number} is different")
        except il.ImpressLearnError as error:
            lines = len(str(error).splitlines())
            report(str(error) if lines == 1 else f"{lines} lines")
        except MemoryError:
            report(f"{number} takes too much memory")
        signal.alarm(0)


def _observed(learner: il.ImpressLearner, names: list[str] | None = None) -> dict[str, Any]:
    """Everything that can be seen of a learner's tasks; of the named ones or of all."""
    found = {}
    for name in learner.tasks_ if names is None else names:
        info, kept = learner.tasks_[name], learner.tasks_.learned(name)
        seen = [info.role, info.classes, info.num_masks, info.breakdown, dict(info.history)]
        found[name] = [*seen, kept.profile, digest(learner, name)]
    return found


def main() -> None:
    small_learner()  # everything is imported and compiled before the first fork
    for line in sys.stdin:
        command = json.loads(line)
        if "wait" in command:
            answer = os.waitstatus_to_exitcode(os.waitpid(command["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                _run(**command)
        print(answer, flush=True)


def _run(job: str, out: str, arguments: dict[str, Any]) -> None:
    handle = os.open(out, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def report(value: Any) -> None:
        os.write(handle, (json.dumps(value) + "\n").encode())

    code = 1
    try:
        globals()[job](report, **arguments)
        code = 0
    except BaseException:
        report(["failed", traceback.format_exc()])
    finally:
        os._exit(code)


PAGE = 4096
HOSTILE = (b"\xff" * 9, b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80" * 9, b"\x00" * 4)


def mutant(valid: bytes, number: int) -> bytes:
    """Damaged copy `number` of a store; the same number gives the same damage."""
    draw, copy = random.Random(number), bytearray(valid)
    page, other = (PAGE * draw.randrange(len(valid) // PAGE) for _ in range(2))
    anywhere, cell = draw.randrange(len(valid)), page + 100 * (page == 0) + draw.randrange(40)
    size = draw.choice((1, 4, 16, 100, 1000))
    kind = number % 8
    if kind == 0:
        for _ in range(draw.choice((1, 1, 2, 8, 64))):
            copy[draw.randrange(len(copy))] ^= 1 << draw.randrange(8)
    elif kind < 5:
        place = (anywhere, draw.randrange(16, 100), cell, cell)[kind - 1]
        pieces = (draw.randbytes(size), bytes(size)) if kind == 1 else HOSTILE
        piece = draw.choice(pieces)[: len(valid) - place]
        copy[place : place + len(piece)] = piece
    elif kind == 5:
        del copy[draw.choice((page, anywhere)) :]
    elif kind == 6:
        copy += draw.randbytes(draw.choice((1, 512, PAGE, 10 * PAGE)))
    else:  # swapped, doubled or blank
        blank = draw.choice((b"\0", b"\xff", b"\r")) * PAGE
        copy[page : page + PAGE] = draw.choice((valid[other : other + PAGE], blank))
        if draw.random() < 0.5:
            copy[other : other + PAGE] = valid[page : page + PAGE]
    return bytes(copy)


if __name__ == "__main__":
    main()
