"""The jobs that worker processes run on a store; started by `storekit.Workers`."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from mutants import mutant
from storekit import HASTY, INPUTS, digest, small_learner

import impresslearn as il
from toys import blobs


def learn(report: Any, path: str, prefix: str, count: int | None = None, basis: int = 0) -> None:
    """Learns tasks one after another, and reports each once it is committed."""
    with il.open_store(path, progress=False, task_recipe=HASTY, basis_recipe=HASTY) as learner:
        report("open")
        number = 0
        while count is None or number < count:
            name = f"{prefix}-{number}"
            while name in learner.tasks_:
                number += 1
                name = f"{prefix}-{number}"
            verb = learner.learn_basis if basis and number % basis == 0 else learner.learn_task
            verb(name, blobs(number))
            report([name, digest(learner, name)])
            number += 1


def learn_named(report: Any, path: str, names: list[str], basis: bool = False) -> None:
    """Learns the named tasks and reports what came of each."""
    with il.open_store(path, progress=False, task_recipe=HASTY, basis_recipe=HASTY) as learner:
        report("open")
        for number, name in enumerate(names):
            try:
                (learner.learn_basis if basis else learner.learn_task)(name, blobs(number))
                report([name, digest(learner, name)])
            except il.ImpressLearnError as error:
                report([name, type(error).__name__, str(error)])


def read(report: Any, path: str, readonly: bool, stop: str) -> None:
    """Predicts every task it finds, again and again, until a file `stop` is there."""
    learner = il.open_store(path, progress=False, readonly=readonly, cache_bytes=4000)
    report("open")
    answers: dict[str, str] = {}
    rounds = 0
    while not os.path.exists(stop):
        for name in learner.tasks_:
            found = digest(learner, name)
            if answers.setdefault(name, found) != found:
                report(["changed", name])
            if rounds % 3 == 0:
                learner.predict(INPUTS, name)
        rounds += 1
    report([rounds, answers])
    learner.close()


def open_and_close(report: Any, path: str, stop: str) -> None:
    """Opens, predicts and closes until a file `stop` is there."""
    rounds = 0
    while not os.path.exists(stop):
        with il.open_store(path, progress=False, readonly=rounds % 2 == 0) as learner:
            digest(learner, "first")
        rounds += 1
    report(rounds)


def hold(report: Any, path: str, stop: str, readonly: bool = False) -> None:
    """Keeps a store open until a file `stop` is there."""
    with il.open_store(path, progress=False, readonly=readonly) as learner:
        report(["open", digest(learner, "first")])
        while not os.path.exists(stop):
            time.sleep(0.005)


def judge(report: Any, source: str, folder: str, first: int, count: int, verb: str) -> None:
    """Loads or opens damaged copies; reports a number that is begun, and what came of it.

    "equal" or the error's line; anything else that happens is reported as ["failed", …]. A copy
    may take seconds of the process's time and little memory, else the process ends.
    """
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + 600 * 2**20,) * 2)
    valid, copy = Path(source).read_bytes(), Path(folder) / "copy.impress"
    expected = observed(il.load(source, progress=False))
    for number in range(first, first + count):
        report([number])
        for suffix in ("-wal", "-shm", "-journal"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)
        copy.write_bytes(mutant(valid, number))
        signal.alarm(20)
        try:
            learner = il.load(copy, progress=False) if verb == "load" else il.open_store(copy)
            try:
                found = observed(learner, list(expected) if verb == "open" else None)
            finally:
                learner.close()
            report([number, "equal" if found == expected else "different"])
        except il.ImpressLearnError as error:
            lines = len(str(error).splitlines())
            report([number, str(error) if lines == 1 else f"{lines} lines"])
        except MemoryError:
            report([number, "memory"])
        signal.alarm(0)


def observed(learner: il.ImpressLearner, names: list[str] | None = None) -> dict[str, Any]:
    """Everything that can be seen of a learner's tasks; of the named ones or of all."""
    found = {}
    for name in learner.tasks_ if names is None else names:
        info = learner.tasks_[name]
        stored = learner.tasks_.learned(name)
        kept = [info.role, info.classes, info.num_masks, info.breakdown, info.history]
        found[name] = [*kept, stored.profile, digest(learner, name)]
    return found


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def migrate(report: Any, path: str) -> None:
    """Begins a migration that never ends."""
    from impresslearn.store import schema

    def endless(connection: Any) -> None:
        connection.execute("CREATE TABLE extra (a)")
        report("migrating")
        time.sleep(600)

    schema.VERSION = 3
    schema.MIGRATIONS[2] = endless
    il.open_store(path)


def remove(report: Any, path: str, names: list[str]) -> None:
    """Removes tasks and masks in a transaction that never ends."""
    from impresslearn.store import remove_tasks
    from impresslearn.store.contents import Contents

    removed = Contents.remove_masks

    def endless(contents: Contents, positions: Any) -> None:
        removed(contents, positions)
        report("removing")
        time.sleep(600)

    Contents.remove_masks = endless
    remove_tasks(path, names)


def verify_again_and_again(report: Any, path: str, stop: str) -> None:
    """Opens a store, predicts all its tasks, and verifies it, until a file `stop` is there."""
    from impresslearn.learner.loading import verify_store

    while not os.path.exists(stop):
        try:
            with il.open_store(path, readonly=True, progress=False) as learner:
                for task in learner.tasks_:
                    digest(learner, task)
        except il.UnknownTaskError:
            pass  # removed since its name was read
        except il.StoreError as error:
            if "masks were removed" not in str(error):  # since it was opened
                raise
        report(verify_store(path))


def main() -> None:
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


if __name__ == "__main__":
    small_learner()  # everything is imported and compiled before the first fork
    main()
