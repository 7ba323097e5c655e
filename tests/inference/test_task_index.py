"""The shortlist of very many tasks over a pretrained network."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

import impresslearn as il
import impresslearn.learner.learner as learner_module
import impresslearn.store.task_index as task_index
from impresslearn.errors import StoppedError
from impresslearn.inference.exhaustive import stopping
from toys import few_labels, mlp

FEATURES, TASKS = 8, 40


def data_of(number: int, count: int = 60, draw: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes whose centres are the task's own."""
    centres = np.random.default_rng(number).normal(size=(3, FEATURES)) * 3
    draws = np.random.default_rng((number, draw))
    labels = np.arange(count) % 3
    return (centres[labels] + draws.normal(size=(count, FEATURES))).astype(np.float32), labels


def body() -> nn.Sequential:
    return mlp(64, inputs=FEATURES)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    learner = few_labels(body())
    for number in range(TASKS):
        learner.learn_task(f"t{number}", data_of(number))
    path = tmp_path_factory.mktemp("many") / "many.impress"
    learner.save(path)
    return path


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these were very many tasks."""
    few = {"MANY_TASKS": 20, "SHORTLIST": 8, "SHORTLIST_OF_ONE": 5, "WORTH_WRITING": 10}
    few |= {"TASKS": 7, "AT_ONCE": 16}
    for name, value in few.items():
        monkeypatch.setattr(task_index, name, value)


def copied(stored: Path, folder: Path) -> il.ImpressLearner:
    path = folder / stored.name
    path.write_bytes(stored.read_bytes())
    return il.open_store(path, module=body(), progress=False)


@pytest.mark.parametrize("size", [1, 8])
def test_the_shortlist_has_the_task_that_a_full_search_finds(stored, tmp_path, size):
    learner = copied(stored, tmp_path)
    right = agreed = 0
    for number in range(TASKS):
        inputs = data_of(number, size, draw=1)[0]
        guess = learner.infer_task(inputs)
        assert len(guess.posterior) == 8
        agreed += guess.best == learner.infer_task(inputs, method="exhaustive").best
        right += guess.best == f"t{number}"
    assert agreed >= TASKS * (0.95 if size == 1 else 1)
    assert right > TASKS * (0.8 if size == 1 else 0.9)


def test_inputs_one_by_one_of_several_tasks(stored, tmp_path):
    learner = copied(stored, tmp_path)
    inputs = np.concatenate([data_of(number, 3, draw=1)[0] for number in (3, 17, 30)])
    exact = learner.infer_tasks(inputs, among=list(learner.tasks_))
    assert [guess.best for guess in learner.infer_tasks(inputs)] == [each.best for each in exact]
    assert learner.predict(inputs, per_input=True).shape == (9,)


def test_tasks_with_weights_of_their_own_are_judged_too():
    backbone = il.adapt(body(), head="own", input_shape=(FEATURES,))
    quick = il.Recipe(epochs=0, min_steps=20)
    learner = il.ImpressLearner(backbone, task_recipe=quick, progress=False).add_random_masks(4)
    for number in range(21):
        learner.learn_task(f"t{number}", data_of(number))
    guess = learner.infer_task(data_of(3, 8, draw=1)[0])
    assert (len(guess.posterior), guess.best) == (8, "t3")


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_index_follows_the_tasks(stored, tmp_path, in_memory):
    loaded = il.load(stored, module=body(), progress=False)
    learner = loaded if in_memory else copied(stored, tmp_path)
    inputs = data_of(7, 8, draw=1)[0]
    assert learner.infer_task(inputs).best == "t7"
    learner.remove_task("t7")
    assert learner.infer_task(inputs).best != "t7"
    learner.learn_task("again", data_of(7))
    assert learner.infer_task(inputs).best == "again"
    learner.update_task("again", data_of(99))
    assert learner.infer_task(data_of(99, 8, draw=1)[0]).best == "again"


def test_a_few_tasks_without_means_are_always_judged(stored, tmp_path):
    learner = copied(stored, tmp_path)
    for number in range(8):
        learner.learn_task(f"small {number}", data_of(100 + number, 5))
    inputs = data_of(7, 8, draw=1)[0]
    for among in ("all", "learned"):
        guess = learner.infer_task(inputs, among=among)
        assert (len(guess.posterior), guess.best) == (16, "t7")
    learner.learn_task("small 8", data_of(108, 5))
    assert len(learner.infer_task(inputs).posterior) == TASKS + 9
    learner.remove_task("small 0")
    assert len(learner.infer_task(inputs).posterior) == 16


def test_an_index_that_nobody_waits_for_is_finished_by_the_next(stored, tmp_path, monkeypatch):
    learner, wanted = copied(stored, tmp_path), iter([True] * 20)
    token = stopping.set(lambda: not next(wanted, False))
    try:
        with pytest.raises(StoppedError):
            learner.infer_task(data_of(7, 8, draw=1)[0])
    finally:
        stopping.reset(token)
    looked_at = looks(monkeypatch)
    assert learner.infer_task(data_of(7, 8, draw=1)[0]).best == "t7"
    assert len(looked_at) == TASKS - 16


def test_a_warning_comes_before_many_tasks_are_compared(stored, tmp_path, monkeypatch):
    learner, inputs = copied(stored, tmp_path), data_of(7, 8, draw=1)[0]
    monkeypatch.setattr(learner_module, "MANY_COMPARED", 20)
    assert learner.infer_task(inputs).best == "t7"  # by the index
    with pytest.warns(UserWarning, match="with 40 tasks one by one, .* pass fewer"):
        learner.infer_task(inputs, method="exhaustive")
    with pytest.warns(UserWarning, match="with 30 tasks one by one"):
        learner.infer_tasks(inputs, among=list(learner.tasks_)[:30])


def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tasks whose means are computed from now on."""
    names: list[str] = []
    rows_of = task_index.TaskIndex._rows_of
    monkeypatch.setattr(
        task_index.TaskIndex,
        "_rows_of",
        lambda index, key, name, space: names.append(name) or rows_of(index, key, name, space),
    )
    return names


@pytest.mark.parametrize("damage", ["none", "cut", "other bytes", "gone"])
def test_the_file_beside_the_store_is_only_a_copy(stored, tmp_path, damage, monkeypatch):
    inputs = data_of(7, 8, draw=1)[0]
    with copied(stored, tmp_path) as learner:
        guess = learner.infer_task(inputs)
    file = tmp_path / f"{stored.name}.index"
    content = file.read_bytes()
    changed = {"cut": content[:50], "other bytes": content[:-40] + bytes(40), "none": content}
    file.write_bytes(changed.get(damage, b""))
    if damage == "gone":
        file.unlink()
    looked_at = looks(monkeypatch)
    with il.open_store(tmp_path / stored.name, module=body(), readonly=True) as learner:
        again = learner.infer_task(inputs)
    assert (again.best, again.posterior.keys()) == (guess.best, guess.posterior.keys())
    assert len(looked_at) == (0 if damage == "none" else TASKS)
