"""Masks removed from a store, and rows that are copied into it only after they were decoded."""

import os
import signal
import sqlite3

import pytest
import torch
from forgery import forge_mask, forge_task
from storekit import HASTY, digest, many_tasks, reports, small_learner, until

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.masks import disjoint_bank
from impresslearn.store import import_tasks, remove_tasks
from toys import ConvNet, blobs, lenet, pictures, quick_learner


@pytest.fixture
def path(tmp_path):
    """Masks basis-0, basis-1, random-0, random-1, late; task `first` combines the first four."""
    learner = small_learner()
    learner.learn_basis("late", blobs(5)).save(tmp_path / "a.impress")
    return tmp_path / "a.impress"


def hasty(path):
    return il.open_store(path, progress=False, basis_recipe=HASTY, task_recipe=HASTY)


def answers(path):
    learner = il.load(path, progress=False)
    return {name: digest(learner, name) for name in learner.tasks_}


def test_a_mask_that_nobody_combines_goes_with_its_task(path):
    before = answers(path)
    assert remove_tasks(path, ["late"]) == {}
    assert verify_store(path) == {"tasks": 3, "masks": 4}
    with hasty(path) as learner:
        learner.learn_basis("late", blobs(6))
    assert verify_store(path) == {"tasks": 4, "masks": 5}
    del before["late"]
    assert before.items() < answers(path).items()


def test_a_mask_that_tasks_combine_stays_until_they_are_gone(path):
    before = answers(path)
    assert remove_tasks(path, ["basis-0"]) == {"basis-0": 1}
    assert verify_store(path)["masks"] == 5
    with pytest.raises(il.InputError, match="mask 'basis-0' cannot go, as 1 of the tasks"):
        remove_tasks(path, ["late", "basis-0"])
    assert remove_tasks(path, ["first", "basis-0"]) == {}
    back = il.load(path, progress=False, basis_recipe=HASTY)
    assert back.bank_.names == ("basis-1", "random-0", "random-1", "late")
    assert [back.tasks_[name].num_masks for name in ("basis-1", "late")] == [1, 4]
    assert answers(path) == {name: before[name] for name in ("basis-1", "late")}
    assert verify_store(path) == {"tasks": 2, "masks": 4}
    back.learn_basis("basis-0", blobs(0))


def test_masks_between_others_go_all_at_once(path):
    before = answers(path)
    with hasty(path) as learner:
        learner.learn_homogeneous("seeds", blobs(7), 3).learn_basis("last", blobs(8))
        before["last"] = digest(learner, "last")
    assert remove_tasks(path, ["seeds", "late"]) == {}
    assert il.load(path).bank_.names == ("basis-0", "basis-1", "random-0", "random-1", "last")
    assert answers(path) == {name: now for name, now in before.items() if name != "late"}
    with hasty(path) as learner:
        learner.learn_homogeneous("seeds", blobs(7), 3)


def test_random_masks_do_not_depend_on_their_positions(tmp_path):
    learner = quick_learner(bank=disjoint_bank(lenet().layers, 4, seed=3)).add_random_masks(3)
    learner.save(tmp_path / "a")
    assert remove_tasks(tmp_path / "a", ["disjoint-1", "random-0", "random-1"]) == {}
    back = il.load(tmp_path / "a", progress=False)
    for name in ("disjoint-0", "disjoint-3", "random-2"):
        ours, theirs = back.bank_.mask(name), learner.bank_.mask(name)
        assert all(torch.equal(ours[layer], theirs[layer]) for layer in ours)
    back.add_random_masks(2)
    assert back.bank_.names[-2:] == ("random-3", "random-4")


@pytest.mark.parametrize("readonly", [True, False])
def test_who_has_the_store_open_notices(path, readonly):
    with il.open_store(path, readonly=readonly, progress=False) as bound:
        digest(bound, "late")
        remove_tasks(path, ["late"])
        with hasty(path) as other:
            other.learn_basis("other", blobs(9)).learn_task("over it", blobs(10))
        verbs = [lambda: digest(bound, "over it"), lambda: bound.bank_, lambda: bound.coefficients_]
        if not readonly:
            verbs.append(lambda: bound.learn_task("new", blobs(11)))
        for verb in verbs:
            with pytest.raises(il.StoreError, match="masks were removed .* open it again"):
                verb()
    assert len(answers(path)) == 5


def test_what_is_learned_over_removed_masks_is_not_kept(path, monkeypatch):
    with hasty(path) as bound:
        judge = bound._state._judged
        monkeypatch.setattr(
            bound._state, "_judged", lambda *how: [remove_tasks(path, ["late"]), judge(*how)][1]
        )
        with pytest.raises(il.StoreError, match="masks were removed"):
            bound.learn_task("new", blobs(3))
    assert verify_store(path) == {"tasks": 3, "masks": 4}


def test_a_removal_that_is_killed_changes_nothing(pool, path, tmp_path):
    before = answers(path)
    pid = pool.start("remove", tmp_path / "out", path=str(path), names=["late", "first", "basis-0"])
    until(lambda: reports(tmp_path / "out") == ["removing"])
    assert answers(path) == before
    os.kill(pid, signal.SIGKILL)
    pool.wait(pid)
    assert verify_store(path) == {"tasks": 4, "masks": 5}
    assert answers(path) == before


def test_readers_see_one_state_or_the_other(pool, path, tmp_path):
    """Each of many openings finds all masks of its tasks, while masks come and go."""
    stop, out = tmp_path / "stop", tmp_path / "out"
    pid = pool.start("verify_again_and_again", out, path=str(path), stop=str(stop))
    until(lambda: reports(out))
    for number in range(4):
        remove_tasks(path, ["late"])
        with hasty(path) as learner:
            learner.learn_basis("late", blobs(number))
    stop.touch()
    assert pool.wait(pid) == 0, reports(out)[-1]


@pytest.mark.parametrize(
    "damage", [{"bits": b"\1garbage!"}, {"recipe": "{}"}, {"digest": b"0" * 16}]
)
def test_a_forged_mask_is_not_imported(path, tmp_path, damage):
    small_learner().save(tmp_path / "target")
    forge_mask(path, 5, **damage)
    with pytest.raises(il.StoreError, match=r"a\.impress is damaged: mask 'late'"):
        import_tasks(tmp_path / "target", path, ["late"])
    assert verify_store(tmp_path / "target") == {"tasks": 3, "masks": 4}


@pytest.mark.parametrize(
    "damage",
    [{"coefficients": b"\xff" * 48}, {"num_masks": 3}, {"classes": "[7, 7, 7]"}, {"metrics": "[]"}],
)
def test_a_forged_task_is_not_imported(path, tmp_path, damage):
    small_learner().save(tmp_path / "target")
    remove_tasks(tmp_path / "target", ["first"])
    forge_task(path, "first", **damage)
    with pytest.raises(il.StoreError, match=r"a\.impress is damaged: task 'first'"):
        import_tasks(tmp_path / "target", path, ["first"])
    assert verify_store(tmp_path / "target") == {"tasks": 2, "masks": 4}


def test_a_task_of_a_mask_that_is_not_there_is_not_imported(path, tmp_path):
    small_learner().save(tmp_path / "target")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
    connection.close()
    forge_task(path, "late", num_masks=4)
    with pytest.raises(il.StoreError, match="has a mask that is not there"):
        import_tasks(tmp_path / "target", path, ["late"])


def test_importing_into_a_network_of_ones_own_needs_it(tmp_path):
    for name in "ab":
        network = il.adapt(ConvNet(), norm="per_task", input_shape=(3, 8, 8))
        learner = quick_learner(network, basis_recipe=HASTY).learn_basis("same", pictures(0))
        if name == "b":
            learner.learn_task("new", pictures(1))
        learner.save(tmp_path / name)
    with pytest.raises(il.StoreError, match="pass one of the same structure as module="):
        import_tasks(tmp_path / "a", tmp_path / "b", ["new"])
    assert import_tasks(tmp_path / "a", tmp_path / "b", ["new"], module=ConvNet()) == ["new"]
    assert verify_store(tmp_path / "a", module=ConvNet())["tasks"] == 2


def test_removing_looks_at_every_task(path):
    with hasty(path) as learner:
        many_tasks(learner, 300)
    assert remove_tasks(path, ["late"]) == {"late": 300}
