"""Tasks and masks removed from a store or copied into it and room given back."""

import pytest
from storekit import QUICKLY, digest, digests, files, hasty

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.masks import disjoint_bank
from impresslearn.store import compact_store, import_tasks, remove_tasks
from impresslearn.store.rows import Rows
from toys import ConvNet, blobs, lenet, pictures, quick_learner, resnet


@pytest.fixture
def late(path):
    """Masks basis-0, basis-1, random-0, random-1, late; task `first` combines the first four."""
    with hasty(path) as learner:
        learner.learn_basis("late", blobs(5))
    return path


def grown(path, target, *names, basis=()):
    """A copy of a store with more tasks."""
    learner = il.load(path, progress=False, **QUICKLY)
    for number, name in enumerate(names):
        (learner.learn_basis if name in basis else learner.learn_task)(name, blobs(number + 20))
    return learner.save(target)


# Removing


def test_removing(path):
    learner = il.load(path)
    remove_tasks(path, ["basis-0", "basis-0"])
    back = il.load(path, progress=False)
    assert list(back.tasks_) == ["basis-1", "first"]
    assert back.bank_.names == learner.bank_.names
    assert digest(back, "first") == digest(learner, "first")
    with pytest.raises(il.InputError, match="'basis-0'"):  # its mask is there still
        back.learn_basis("basis-0", blobs(0))
    back.learn_task("basis-0", blobs(0))
    with pytest.raises(il.InputError, match=r"no task named 'none' in .*; nothing was removed"):
        remove_tasks(path, ["first", "none"])
    with pytest.raises(il.InputError, match="the single name"):
        remove_tasks(path, "first")
    assert verify_store(path) == {"tasks": 2, "masks": 4}


def test_masks_that_nobody_combines_go_with_their_task(late):
    with hasty(late) as learner:
        learner.learn_homogeneous("seeds", blobs(7), 3).learn_basis("last", blobs(8))
    before = digests(late)
    assert remove_tasks(late, ["seeds", "late"]) == {}
    assert il.load(late).bank_.names == ("basis-0", "basis-1", "random-0", "random-1", "last")
    assert digests(late) == {k: v for k, v in before.items() if k not in ("seeds", "late")}
    with hasty(late) as learner:
        learner.learn_homogeneous("seeds", blobs(7), 3)
    assert verify_store(late) == {"tasks": 5, "masks": 8}


def test_a_mask_that_tasks_combine_stays_until_they_are_gone(late):
    before = digests(late)
    assert remove_tasks(late, ["basis-0"]) == {"basis-0": 1}
    assert verify_store(late)["masks"] == 5
    with pytest.raises(il.InputError, match="mask 'basis-0' cannot go, as 1 of the tasks"):
        remove_tasks(late, ["late", "basis-0"])
    assert remove_tasks(late, ["first", "basis-0"]) == {}
    back = il.load(late, progress=False, basis_recipe=QUICKLY["basis_recipe"])
    assert back.bank_.names == ("basis-1", "random-0", "random-1", "late")
    assert [back.tasks_[name].num_masks for name in ("basis-1", "late")] == [1, 4]
    assert digests(late) == {name: before[name] for name in ("basis-1", "late")}
    assert verify_store(late) == {"tasks": 2, "masks": 4}


def test_random_masks_do_not_depend_on_their_positions(tmp_path):
    learner = quick_learner(bank=disjoint_bank(lenet().layers, 4, seed=3)).add_random_masks(3)
    learner.save(tmp_path / "a")
    assert remove_tasks(tmp_path / "a", ["disjoint-1", "random-0", "random-1"]) == {}
    back = il.load(tmp_path / "a", progress=False)
    for name in ("disjoint-0", "disjoint-3", "random-2"):
        ours, theirs = back.bank_.mask(name), learner.bank_.mask(name)
        assert all(ours[layer].equal(theirs[layer]) for layer in ours)
    back.add_random_masks(2)
    assert back.bank_.names[-2:] == ("random-3", "random-4")


def test_who_has_the_store_open_notices(late, monkeypatch):
    """Also at the end of learning, of which nothing is kept then."""
    words = "masks were removed .* open it again"
    with hasty(late) as bound, hasty(late, readonly=True) as reader:
        digest(reader, "late")
        commit = bound._store._commit
        monkeypatch.setattr(
            bound._store,
            "_commit",
            lambda *of, **how: [remove_tasks(late, ["late"]), commit(*of, **how)],
        )
        with pytest.raises(il.StoreError, match=words):
            bound.learn_task("new", blobs(3))
        with hasty(late) as other:
            other.learn_basis("other", blobs(9)).learn_task("over it", blobs(10))
        for verb in (lambda x: digest(x, "over it"), lambda x: x.bank_, lambda x: x.coefficients_):
            for each in (bound, reader):
                with pytest.raises(il.StoreError, match=words):
                    verb(each)
    assert verify_store(late) == {"tasks": 5, "masks": 5}


def test_a_removal_that_is_interrupted_changes_nothing(late, monkeypatch):
    before, remove = digests(late), Rows.remove_masks

    def interrupted(*how):
        remove(*how)
        assert digests(late) == before  # for everybody else
        raise KeyboardInterrupt

    monkeypatch.setattr(Rows, "remove_masks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        remove_tasks(late, ["late", "first", "basis-0"])
    assert verify_store(late) == {"tasks": 4, "masks": 5}
    assert digests(late) == before


def test_compacting(path):
    with hasty(path) as learner:
        names = [f"task {number} {'x' * 3000}" for number in range(40)]
        learner.learn_tasks({name: blobs(1) for name in names})
        with pytest.raises(il.StoreError, match="in use by another process"):
            compact_store(path, timeout=0.1)
    remove_tasks(path, names)
    expected = digests(path)
    before, after = compact_store(path)
    assert after < before / 2
    assert after == path.stat().st_size
    assert digests(path) == expected
    assert files(path.parent) == ["a.impress"]
    with hasty(path) as learner:
        learner.learn_task(names[0], blobs(1))
        assert learner.tasks_.learned(names[0]).number > 43  # a number is never given twice


# Importing


def test_importing(path, tmp_path):
    other = tmp_path / "b.impress"
    learner = grown(path, other, "x", "basis", "y", basis=["basis"])
    assert import_tasks(path, other, ["y", "x", "y"]) == ["y", "x"]
    back = il.load(path)
    assert list(back.tasks_)[3:] == ["y", "x"]
    assert back.bank_.names == learner.bank_.names
    assert digests(back).items() < digests(learner).items()
    for source in (other, path):
        with pytest.raises(il.InputError, match="a task 'basis-0' already; nothing was imported"):
            import_tasks(path, source)
    with pytest.raises(il.InputError, match="no task named 'z'"):
        import_tasks(path, other, ["basis", "z"])
    assert import_tasks(path, other, ["basis"]) == ["basis"]
    assert verify_store(path) == verify_store(other) == {"tasks": 6, "masks": 5}


def test_importing_between_strangers(path, tmp_path):
    one, two, other = (tmp_path / name for name in ("one", "two", "other"))
    grown(path, one, "x", basis=["x"])
    grown(path, two, "y", "x", basis=["y"])
    with pytest.raises(il.InputError, match=r"mask 'y' of .*two is not mask 'x' of .*one"):
        import_tasks(one, two, ["x"])
    quick_learner(lenet(seed=1)).save(other)
    with pytest.raises(il.InputError, match="tasks of another network"):
        import_tasks(path, other)


def test_importing_shared_statistics(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for number, path in enumerate(paths):
        learner = quick_learner(resnet("shared"), **QUICKLY).add_random_masks(2)
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


def test_importing_into_a_network_of_ones_own_needs_it(tmp_path):
    for name in "ab":
        network = il.adapt(ConvNet(), norm="per_task", input_shape=(3, 8, 8))
        quick_learner(network, **QUICKLY).learn_basis(name, pictures(0)).save(tmp_path / name)
    remove_tasks(tmp_path / "a", ["a"])
    with pytest.raises(il.StoreError, match="pass one of the same structure as module="):
        import_tasks(tmp_path / "a", tmp_path / "b")
    assert import_tasks(tmp_path / "a", tmp_path / "b", module=ConvNet()) == ["b"]
    assert verify_store(tmp_path / "a", module=ConvNet())["tasks"] == 1
