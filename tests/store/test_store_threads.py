"""One bound learner in many threads, across forks, after `close`, and forgotten."""

import gc
import os
import subprocess
import sys
import threading

import pytest
import torch
from storekit import HASTY, INPUTS, digest, small_learner

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.masks import draw_masks
from impresslearn.masks.bank import MaskInfo
from toys import blobs, quick_learner


@pytest.fixture
def path(tmp_path):
    small_learner().save(tmp_path / "a.impress")
    return tmp_path / "a.impress"


def in_threads(*jobs):
    """Runs jobs side by side; raises what any of them raised."""
    errors = []

    def run(job):
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[job]) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def busy(learner, rounds=5):
    """Four threads that learn, four that predict, over one learner."""
    expected = learner.logits(INPUTS, "first")
    done = threading.Event()
    left = [4]

    def learn(prefix):
        try:
            for number in range(rounds):
                verb = learner.learn_basis if number % 2 else learner.learn_task
                verb(f"{prefix}-{number}", blobs(number))
        finally:
            left[0] -= 1
            if not left[0]:
                done.set()

    def predict():
        while not done.is_set():
            for name in list(learner.tasks_):
                learner.predict(INPUTS, name)
            learner.infer_task(INPUTS)
            assert torch.allclose(learner.logits(INPUTS, "first"), expected, atol=1e-5)
            assert len(learner.bank_) >= 4

    in_threads(*(lambda n=n: learn(f"t{n}") for n in range(4)), *[predict] * 4)
    return 4 * rounds


def test_eight_threads_on_a_bound_learner(path):
    with il.open_store(path, progress=False) as learner:
        learned = busy(learner)
        expected = {name: digest(learner, name) for name in learner.tasks_}
        masks = learner.bank_.names
    assert verify_store(path) == {"tasks": 3 + learned, "masks": len(masks)}
    back = il.load(path)
    assert back.bank_.names == masks
    assert {name: digest(back, name) for name in back.tasks_} == expected


def test_eight_threads_in_memory_while_another_saves(tmp_path):
    learner, path = small_learner(), tmp_path / "a.impress"
    saved = []

    def save():
        for _ in range(5):
            learner.save(path, overwrite=True)
            saved.append(verify_store(path)["tasks"])

    in_threads(lambda: busy(learner), save)
    learner.save(path, overwrite=True)
    assert saved == sorted(saved)
    back = il.load(path)
    assert {name: digest(back, name) for name in back.tasks_} == {
        name: digest(learner, name) for name in learner.tasks_
    }


@pytest.mark.parametrize("bound", [False, True])
def test_one_name_in_two_threads(path, bound):
    learner = il.open_store(path, progress=False) if bound else small_learner()
    outcomes = []

    def learn():
        try:
            learner.learn_basis("same", blobs(1))
            outcomes.append("won")
        except il.InputError as error:
            outcomes.append(str(error))

    in_threads(learn, learn, learn)
    assert outcomes.count("won") == 1
    assert all("choose another name" in each for each in outcomes if each != "won")
    assert learner.bank_.names.count("same") == 1
    learner.close()


def test_many_short_threads_leave_no_files_open(path):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("counts open files as Linux shows them")
    with il.open_store(path, progress=False) as learner:
        digest(learner, "first")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(40):
            in_threads(lambda: learner.predict(INPUTS, "first"))
        assert len(os.listdir("/proc/self/fd")) == before
    assert len(os.listdir("/proc/self/fd")) < before


def test_after_close(path):
    learner = il.open_store(path, progress=False)
    digest(learner, "first")
    learner.close()
    learner.close()
    for verb in (
        lambda: learner.predict(INPUTS, "first"),
        lambda: learner.learn_task("new", blobs(1)),
        lambda: learner.learn_basis("new", blobs(1)),
        lambda: learner.add_random_masks(1),
        lambda: list(learner.tasks_),
        lambda: learner.bank_,
    ):
        with pytest.raises(il.StoreError, match="was closed; open it again"):
            verb()
    memory = small_learner()
    memory.close()
    assert len(memory.learn_task("new", blobs(1)).tasks_) == 4


def test_a_store_that_was_forgotten(path):
    learner = il.open_store(path, progress=False)
    learner.learn_task("new", blobs(1))
    del learner
    gc.collect()
    assert [file.name for file in path.parent.iterdir()] == ["a.impress"]


def test_reading_only(path):
    with il.open_store(
        path, readonly=True, progress=False, basis_recipe=il.Recipe(epochs=10**6)
    ) as r:
        for verb in (
            lambda: r.learn_task("new", blobs(1)),
            lambda: r.learn_basis("new", blobs(1)),  # refused before it trains
            lambda: r.learn_homogeneous("new", blobs(1), 2),
            lambda: r.learn_tasks({"new": blobs(1)}),
            lambda: r.add_random_masks(1),
        ):
            with pytest.raises(il.InputError, match="was opened for reading only"):
                verb()


FORKED = """
import os, sys
sys.path[:0] = sys.argv[2:]
from storekit import *

def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return pid

def well(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

with il.open_store(sys.argv[1], progress=False, task_recipe=HASTY) as learner:
    first = digest(learner, "first")
    def work(name):
        assert digest(learner, "first") == first
        learner.learn_task(name, blobs(1))
        with il.open_store(sys.argv[1], progress=False, task_recipe=HASTY) as own:
            own.learn_task(name + " own", blobs(1))
    pids = [child(lambda n=n: work(f"child {n}")) for n in range(3)]
    learner.learn_task("parent", blobs(2))
    for pid in pids:
        well(pid)
    assert len(learner.tasks_) == 3 + 7
    with learner._state.backend.transaction():
        def inside():
            try:
                learner.learn_task("in vain", blobs(1))
            except il.StoreError:
                return
            raise AssertionError
        learner.learn_task("within", blobs(1))
        pid = child(lambda: None)
        well(pid)
    learner.learn_task("after", blobs(2))
survivor = il.open_store(sys.argv[1], progress=False, task_recipe=HASTY)
ready, told = os.pipe(), os.pipe()
def late():
    os.read(ready[0], 1)
    survivor.learn_task("late", blobs(1))
    os.write(told[1], b"x")
    os.read(ready[0], 1)
    survivor.learn_task("later", blobs(1))
    survivor.close()
pid = child(late)
survivor.close()
os.write(ready[1], b"x")
os.read(told[0], 1)
assert os.path.exists(sys.argv[1] + "-wal")
il.open_store(sys.argv[1]).close()  # not the last one: it must leave the log alone
assert os.path.exists(sys.argv[1] + "-wal")
os.write(ready[1], b"x")
well(pid)
print(sorted(il.load(sys.argv[1]).tasks_))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_across_forks(path):
    paths = [os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__)), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(path), *paths],
        capture_output=True, text=True, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = set(il.load(path).tasks_)
    assert {"child 0", "child 2 own", "parent", "within", "after", "late", "later"} <= names
    assert verify_store(path)["tasks"] == 14
    assert [file.name for file in path.parent.iterdir()] == ["a.impress"]


def test_an_error_inside_a_transaction_changes_nothing(path):
    with il.open_store(path, progress=False) as learner:
        before, masks = list(learner.tasks_), len(learner.bank_)
        backend = learner._state.backend
        for error in (RuntimeError, KeyboardInterrupt, MemoryError):

            def learn_two(error=error):
                with backend.transaction():
                    learner.learn_task("new", blobs(1))
                    learner.learn_task("other", blobs(1))
                    raise error

            with pytest.raises(error):
                learn_two()
            assert list(learner.tasks_) == before
        assert verify_store(path) == {"tasks": len(before), "masks": masks}


def test_memory_and_file_stay_equal_when_a_commit_fails(path, monkeypatch):
    from impresslearn.store.contents import Contents

    with il.open_store(path, progress=False, basis_recipe=HASTY) as learner:
        for place in ("add_mask", "add_task", "_write_state"):
            real = getattr(Contents, place)

            def fail(*arguments):
                raise il.StoreError("no")

            monkeypatch.setattr(Contents, place, fail)
            for verb in (learner.learn_basis, learner.learn_task):
                if not (place == "add_mask" and verb == learner.learn_task):
                    with pytest.raises(il.StoreError, match=r"^no$"):
                        verb("new", blobs(1))
            monkeypatch.setattr(Contents, place, real)
            assert list(learner.tasks_) == list(il.load(path).tasks_)
            assert learner.bank_.names == il.load(path).bank_.names
        learner.learn_basis("new", blobs(1))
        assert learner.bank_.names == il.load(path).bank_.names
        assert digest(learner, "new") == digest(il.load(path), "new")


def test_random_masks_of_taken_names_change_nothing():
    learner = quick_learner()
    one = draw_masks(learner.bank_, 2)
    learner._state.commit_masks(one)
    with pytest.raises(il.InputError, match="'random-0'; choose another name"):
        learner._state.commit_masks([(MaskInfo("x", "given", (1, 1, 1)), one[0][1]), *one])
    assert learner.bank_.names == ("random-0", "random-1")
