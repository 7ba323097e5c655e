"""The jobs that worker processes run on a store; started by `conftest.Workers`."""

import json
import os
import random
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from storekit import INPUTS, digest, hasty, version_digests

import impresslearn as il
from impresslearn.learner.loading import verify_store
from toys import blobs


def learn(report: Any, path: str, prefix: str, count: int | None = None, basis: int = 0) -> None:
    """Learns tasks prefix-0, … and reports what came of each, once it is committed.

    basis: every number of them, one is a basis task.
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
            verb = draw.choice(["learn", "basis", "update", "update", "restore", "remove"])
            is_new = not names or verb in ("learn", "basis")
            name = f"{seed}-{number}" if is_new else draw.choice(names)
            versions = learner.tasks_[name].version if name in names else 0
            if verb == "restore" and versions < 2:
                verb = "update" if versions else "learn"
            report([name, verb])
            if verb == "basis":
                learner.learn_basis(name, blobs(draw.randrange(100)))
            elif versions == 0:
                learner.learn_task(name, blobs(draw.randrange(100)))
            elif verb == "update":
                learner.update_task(name, blobs(draw.randrange(100)))
            elif verb == "restore":
                learner.restore_task(name, draw.randrange(1, versions))
            else:
                learner.remove_task(name)
            report([name, version_digests(learner).get(name)])


def change_once(report: Any, path: str, verb: str, statement: int) -> None:
    """Makes one change to a store, and dies as its statement of that number begins."""
    with hasty(path) as learner:
        seen = 0

        def die(sql: str) -> None:
            nonlocal seen
            seen += 1
            if seen == statement:
                os.kill(os.getpid(), signal.SIGKILL)

        learner._store.database.writing.connection.set_trace_callback(die)
        given = {
            "update_task": ("known", blobs(3)), "restore_task": ("known", 1),
            "remove_task": ("known",),
        }  # fmt: skip
        getattr(learner, verb)(*given.get(verb, ("new", blobs(3))))
        learner._store.database.writing.connection.set_trace_callback(None)


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


def run(job: str, out: Path, arguments: dict[str, Any]) -> None:
    """Runs a job of this file; what it reports goes to `out`, one JSON value per line."""
    handle = os.open(out, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def report(value: Any) -> None:
        os.write(handle, (json.dumps(value) + "\n").encode())

    try:
        globals()[job](report, **arguments)
    except BaseException:
        report(["failed", traceback.format_exc()])
        sys.exit(1)
