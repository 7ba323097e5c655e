"""Many tasks in several processes: the same bits, whatever dies on the way."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn.errors import InputError, NotLearnedWarning, TasksFailedError
from impresslearn.learner import parallel
from impresslearn.learner.parallel import CHUNK
from toys import FEATURES, Data, blobs, few_labels, lenet, mlp

TASKS = 2 * CHUNK + 5


def data_of(number: int, calls: str = "") -> Data:
    """The data of a task; `calls` is a folder that notes who asked."""
    if calls:
        Path(calls, f"{number}-{time.time_ns()}").touch()
    return blobs(number, count=60)


def dying_once(number: int, folder: str) -> Data:
    """Kills its worker the first time."""
    mark = Path(folder, f"died-{number}")
    if number == CHUNK + 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return data_of(number)


def new_learner(**settings: object) -> il.ImpressLearner:
    return few_labels(mlp(), **settings)


def tasks(count: int = TASKS, load: object = data_of, **settings: object) -> dict[str, object]:
    return {f"task-{number}": partial(load, number, **settings) for number in range(count)}


def contents(learner: il.ImpressLearner) -> dict[str, tuple[bytes | None, ...]]:
    """What each task learned, without times."""
    rows = learner._store.rows.task_rows()
    return {row.name: (row.coefficients, row.profile, row.form) for row in rows}


@pytest.fixture(scope="module")
def alone() -> dict[str, tuple[bytes | None, ...]]:
    """The tasks learned by one process, one by one."""
    learner = new_learner()
    for name, load in tasks().items():
        learner.learn_task(name, load())
    return contents(learner)


@pytest.fixture(scope="module")
def executor() -> Iterator[ProcessPoolExecutor]:
    """A worker that starts in no time, where processes are forked."""
    with ProcessPoolExecutor(1) as started:
        yield started


def test_two_workers_change_no_bit_and_lose_nothing_when_killed(alone, tmp_path):
    wanted = tasks(load=dying_once, folder=str(tmp_path))
    learner = new_learner().learn_tasks(iter(wanted.items()), workers=2)
    assert len(list(tmp_path.iterdir())) == 1
    assert contents(learner) == alone
    # Workers of joblib beside ours go on working.
    assert joblib.Parallel(2)(joblib.delayed(abs)(-number) for number in range(4)) == [0, 1, 2, 3]


def test_warnings_of_workers_reach_the_caller(executor):
    with pytest.warns(NotLearnedWarning) as caught:
        new_learner(bit_price=1e4).learn_tasks(tasks(2), workers=executor)
    assert [str(each.message)[:12] for each in caught] == ["'task-0' was", "'task-1' was"]


def test_names_are_composed_and_tasks_of_other_processes_stay(executor):
    wanted = {"a": blobs(0), "e\u0301": blobs(1)}
    learner = new_learner().learn_tasks(wanted, workers=executor)
    assert list(learner.tasks_) == ["a", "é"]
    guess = learner.infer_task(blobs(1)[0], among=[*wanted, "é"])
    assert sum(guess.posterior.values()) + guess.unknown_probability == pytest.approx(1)
    rows = [*new_learner().learn_tasks({"b": blobs(2), "a": blobs(3)})._store.rows.task_rows()]
    assert learner._store.commit_many(rows) == ["b"]


def unreadable() -> None:
    raise FileNotFoundError(2, "No such file or directory")


def test_a_failing_task_stops_no_other(alone, executor):
    wanted = tasks(CHUNK + 8)
    wanted["task-12"] = partial(np.zeros, (3, FEATURES))
    wanted["task-9"] = (np.full((4, FEATURES), np.nan, np.float32), [0, 1, 0, 1])
    wanted["gone"] = unreadable
    learner = new_learner()
    with pytest.raises(TasksFailedError, match=r"^4 of 73 tasks were not learned") as caught:
        learner.learn_tasks([*wanted.items(), ("task-3", partial(data_of, 3))], workers=executor)
    errors = caught.value.errors
    assert set(errors) == {"task-9", "task-12", "gone", "task-3"}
    assert "FileNotFoundError: No such file" in str(errors["gone"])
    assert "given twice" in str(errors["task-3"])
    assert "\n" not in str(caught.value)
    assert len(learner.tasks_) == CHUNK + 6
    assert contents(learner) == {name: alone[name] for name in learner.tasks_}


@pytest.mark.parametrize("form", [tuple, lambda pair: il.Examples(*pair)], ids=["pair", "Examples"])
def test_groups_fill_with_small_data_and_large_data_wait_for_their_turn(form, monkeypatch):
    monkeypatch.setattr(parallel, "GROUP_BYTES", 64 * 100)
    loaded, groups, numbers, errors = list[str](), list[list[str]](), {}, {}

    def load(name: str, count: int) -> object:
        loaded.append(name)
        return form((torch.zeros(count, FEATURES), torch.arange(count) % 2))

    def note_of(data: object) -> dict[str, int]:
        if loaded[-1] == "no note":
            raise InputError("its labels cannot be read")
        return {"number": len(loaded)}

    counts = {"a": 10, "no note": 10, "b": 10, "large": 100, "larger": 200, "c": 10}
    chunk = [(name, partial(load, name, count)) for name, count in counts.items()]
    for group, notes in parallel._groups(chunk, note_of, errors):
        groups.append(list(group))
        numbers |= notes
        assert loaded[-1] == groups[-1][-1]
    assert groups == [["a", "b", "large"], ["larger"], ["c"]]
    assert set(errors) == {"no note"}
    assert numbers["c"] == {"number": 6}


def test_workers_train_side_by_side_the_same_bits(executor):
    """The other tests fit readouts, which are not trained."""
    quick = il.Recipe(epochs=0, min_steps=40, batch_size=16)
    settings = {"granularity": "unit", "precision": "coded", "max_bytes": 60, "progress": False}
    wanted = {f"task-{i}": partial(blobs, i, count=[40, 33][i % 2]) for i in range(6)}
    learners = []
    for _ in range(2):
        backbone = lenet()
        bank = il.random_bank(backbone.layers, 4, 0.5)
        learners.append(il.ImpressLearner(backbone, bank=bank, task_recipe=quick, **settings))
    for name, load in wanted.items():
        learners[0].learn_task(name, load())
    learners[1].learn_tasks(wanted, workers=executor)
    assert contents(learners[1]) == contents(learners[0])
    assert list(learners[1].tasks_) == list(wanted)


PATHS = os.pathsep.join([*map(str, Path(__file__).parents[:2]), *filter(None, sys.path)])
DRIVER = """
import sys
import impresslearn as il
from test_parallel import mlp, tasks
if __name__ == "__main__":
    path, count, calls, address = sys.argv[1:]
    if address:
        import ray
        env = {"env_vars": {"PYTHONPATH": ":".join(sys.path)}}
        ray.init(address=address, log_to_driver=False, runtime_env=env)
    with il.open_store(path, module=mlp(), progress=False) as learner:
        chosen = tasks(int(count), calls=calls)
        learner.learn_tasks(chosen, workers="ray" if address else 1)
"""


def drive(folder: Path, count: int, calls: object = "", address: str = "") -> subprocess.Popen:
    """Learns into the store of a folder in a process, or in those of a cluster."""
    (folder / "driver.py").write_text(DRIVER)
    given = [str(folder / "s.impress"), str(count), str(calls), address]
    command = [sys.executable, str(folder / "driver.py"), *given]
    env = {**os.environ, "PYTHONPATH": PATHS}
    return subprocess.Popen(command, start_new_session=True, env=env)


def until_learned(more: int, path: Path, driver: subprocess.Popen) -> None:
    """Waits until a driver has learned this many tasks more."""
    target = len(il.load(path, module=mlp()).tasks_) + more
    while len(il.load(path, module=mlp()).tasks_) < target:
        assert driver.poll() is None
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_driver_goes_on_where_it_ended(alone, tmp_path):
    path, calls = tmp_path / "s.impress", tmp_path / "calls"
    calls.mkdir()
    new_learner().save(path)
    driver = drive(tmp_path, TASKS, calls)
    until_learned(2, path, driver)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    kept = set(il.load(path, module=mlp()).tasks_)
    before = len(list(calls.iterdir()))
    assert 1 < len(kept) < TASKS
    assert drive(tmp_path, TASKS, calls).wait(300) == 0
    assert contents(il.load(path, module=mlp())) == alone
    asked = sorted(calls.iterdir(), key=lambda file: file.name.partition("-")[2])[before:]
    assert {f"task-{file.name.partition('-')[0]}" for file in asked} == set(tasks()) - kept


@pytest.mark.nightly
def test_a_killed_ray_node_and_a_killed_driver_lose_nothing(tmp_path):
    """Two nodes in processes of their own, one of which dies; then the driver does."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    store = tmp_path / "s.impress"
    new_learner().save(store)
    cluster = Cluster(True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1)
    try:
        driver = drive(tmp_path, 500, address=cluster.address)
        until_learned(1, store, driver)
        cluster.remove_node(node, allow_graceful=False)
        until_learned(CHUNK, store, driver)
        driver.kill()
        driver.wait()
        cluster.add_node(num_cpus=1)
        assert drive(tmp_path, 500, address=cluster.address).wait() == 0
    finally:
        cluster.shutdown()
    alone = new_learner().learn_tasks({name: load() for name, load in tasks(500).items()})
    assert contents(il.load(store, module=mlp())) == contents(alone)
