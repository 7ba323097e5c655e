"""Tasks removed from a store or copied into it, room given back, and what is told of a file."""

import pytest
from storekit import HASTY, digest, small_learner

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import (
    compact_store,
    describe_store,
    import_tasks,
    remove_tasks,
)
from toys import blobs, pictures, quick_learner, resnet


@pytest.fixture
def path(tmp_path):
    small_learner().save(tmp_path / "a.impress")
    return tmp_path / "a.impress"


def grown(path, target, *names, basis=()):
    """A copy of a store with more tasks."""
    learner = il.load(path, progress=False, basis_recipe=HASTY, task_recipe=HASTY)
    for number, name in enumerate(names):
        (learner.learn_basis if name in basis else learner.learn_task)(name, blobs(number + 20))
    return learner.save(target)


def test_removing(path):
    learner = il.load(path)
    remove_tasks(path, ["basis-0", "basis-0"])
    back = il.load(path, progress=False)
    assert list(back.tasks_) == ["basis-1", "first"]
    assert back.bank_.names == learner.bank_.names
    assert digest(back, "first") == digest(learner, "first")
    with pytest.raises(il.InputError, match="'basis-0'"):
        back.learn_basis("basis-0", blobs(0))
    back.learn_task("basis-0", blobs(0))
    with pytest.raises(il.InputError, match=r"no task named 'none' in .*; nothing was removed"):
        remove_tasks(path, ["first", "none"])
    with pytest.raises(il.InputError, match="the single name"):
        remove_tasks(path, "first")
    assert verify_store(path) == {"tasks": 2, "masks": 4}


def test_compacting(path):
    with il.open_store(path, progress=False) as learner:
        names = [f"task {number} {'x' * 3000}" for number in range(40)]
        for name in names:
            learner.learn_task(name, blobs(1))
        with pytest.raises(il.StoreError, match="in use by another process"):
            compact_store(path, timeout=0.1)
    remove_tasks(path, names)
    expected = digest(il.load(path), "first")
    before, after = compact_store(path)
    assert after < before / 2
    assert after == path.stat().st_size
    assert digest(il.load(path), "first") == expected
    assert [file.name for file in path.parent.iterdir()] == ["a.impress"]
    with il.open_store(path, progress=False) as learner:
        learner.learn_task(names[0], blobs(1))
        assert learner.tasks_.learned(names[0]).version > 43  # a number is never given twice


def test_importing(path, tmp_path):
    other = tmp_path / "b.impress"
    learner = grown(path, other, "x", "basis", "y", basis=["basis"])
    assert import_tasks(path, other, ["y", "x", "y"]) == ["y", "x"]
    back = il.load(path)
    assert list(back.tasks_)[3:] == ["y", "x"]
    assert back.bank_.names == learner.bank_.names
    assert all(digest(back, name) == digest(learner, name) for name in back.tasks_)
    with pytest.raises(il.InputError, match="has a task 'basis-0' already; nothing was imported"):
        import_tasks(path, other)
    with pytest.raises(il.InputError, match="no task named 'z'"):
        import_tasks(path, other, ["basis", "z"])
    assert len(il.load(path).tasks_) == 5
    assert import_tasks(path, other, ["basis"]) == ["basis"]
    assert verify_store(path) == {"tasks": 6, "masks": 5}
    assert verify_store(other) == {"tasks": 6, "masks": 5}


def test_importing_between_strangers(path, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    grown(path, one, "x", basis=["x"])
    grown(path, two, "y", "x", basis=["y"])
    with pytest.raises(il.InputError, match=r"mask 'y' of .*two is not mask 'x' of .*one"):
        import_tasks(one, two, ["x"])
    assert import_tasks(path, two, ["x"]) == ["x"]
    small_learner(backbone=il.create_backbone("lenet_300_100", 3, seed=1, in_features=16)).save(
        tmp_path / "other"
    )
    with pytest.raises(il.InputError, match="tasks of another network"):
        import_tasks(path, tmp_path / "other")
    with pytest.raises(il.InputError, match="already; nothing was imported"):
        import_tasks(path, path)


def test_importing_shared_statistics(tmp_path):
    quickly = {"basis_recipe": HASTY, "task_recipe": HASTY}
    paths = [tmp_path / name for name in "abc"]
    for number, path in enumerate(paths):
        learner = quick_learner(resnet("shared"), **quickly).add_random_masks(2)
        if number:
            learner.learn_task(f"task-{number}", pictures(number))
        learner.save(path)
    assert import_tasks(paths[0], paths[1]) == ["task-1"]
    images = pictures(5)[0]
    expected = il.load(paths[1]).logits(images, "task-1")
    assert il.load(paths[0]).logits(images, "task-1").equal(expected)
    with pytest.raises(il.InputError, match="other norm statistics"):
        import_tasks(paths[0], paths[2])
    assert verify_store(paths[0])["tasks"] == 1


def test_describing(path):
    found = describe_store(path)
    assert (found["tasks"], found["masks"], found["masks_as_seed"]) == (3, 4, 2)
    assert found["file_bytes"] == path.stat().st_size
    assert found["network"]["spec"]["name"] == "lenet_300_100"
    assert found["settings"]["sparsity"] == 0.7
    assert found["weights_bytes"] > 708 * 4
    small_learner().save(path, weights="seed", overwrite=True)
    assert describe_store(path)["weights_bytes"] == 0
