"""Masks that no task needs go, in memory and in a store; nothing that stays changes."""

import pytest
import torch

import impresslearn as il
from impresslearn.learner import learning
from impresslearn.learner.loading import verify_store
from toys import blobs, lenet, quick_learner, refused


@pytest.fixture(params=["memory", "store"])
def learner(request, tmp_path):
    """Two basis tasks, one learned over their masks, a third basis task and two random masks."""
    made = quick_learner(lenet(4))
    made.learn_basis("a", blobs(1)).learn_basis("b", blobs(2)).learn_task("mixed", blobs(3))
    made.add_masks(1).learn_basis("c", blobs(4)).add_masks(1)
    if request.param == "memory":
        yield made
        return
    made.save(tmp_path / "x.impress")
    with il.open_store(tmp_path / "x.impress", progress=False) as opened:
        yield opened
    verify_store(tmp_path / "x.impress")


def logits(learner):
    inputs = blobs(5)[0]
    return {name: learner.logits(inputs, name) for name in learner.tasks_}


def test_all_that_no_task_needs(learner):
    before = logits(learner)
    assert learner.bank_.names == ("a", "b", "random-0", "c", "random-1")
    assert learner.remove_masks() is learner
    assert learner.bank_.names == ("a", "b", "c")
    after = logits(learner)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert learner.remove_masks().bank_.names == ("a", "b", "c")
    learner.learn_task("new", blobs(6)).add_masks(1)
    assert learner.tasks_["new"].num_masks == 3
    assert learner.bank_.names[3:] == ("random-0",)


def test_those_of_a_removed_task_by_their_names(learner):
    before = logits(learner)
    with pytest.raises(il.InputError, match="mask 'c' cannot go, as tasks need it"):
        learner.remove_masks("random-0", "c")
    assert len(learner.bank_) == 5
    learner.remove_task("c").remove_masks("c")
    assert learner.bank_.names == ("a", "b", "random-0", "random-1")
    refused(r"mask 'b' cannot go", learner.remove_task("b").remove_masks, "b")  # mixed combines it
    with pytest.raises(il.UnknownTaskError, match="no mask named 'z'"):
        learner.remove_masks("z")
    learner.remove_task("mixed").remove_masks()
    assert learner.bank_.names == ("a",)
    assert torch.equal(logits(learner)["a"], before["a"])


def test_masks_of_a_former_version_stay(learner):
    learner.learn_task("new", blobs(6)).update_task("new", blobs(7))
    learner.remove_masks()
    assert len(learner.bank_) == 5
    learner.restore_task("new", 1)


def test_features_of_masks_that_go_are_learned_anew():
    learner = quick_learner(lenet(4, head="own"), granularity="readout")
    learner.add_masks(2).learn_features(blobs(1), dimensions=4)
    learner.learn_task("a", blobs(1)).add_masks(1).learn_features(blobs(2), dimensions=4)
    before = logits(learner)
    learner.remove_masks()
    assert (len(learner.bank_), learner._store.rows.projections()) == (2, 1)
    assert torch.equal(logits(learner)["a"], before["a"])
    learner.learn_task("b", blobs(3))


def test_another_process_sees_that_masks_are_gone(tmp_path):
    path = tmp_path / "x.impress"
    quick_learner(lenet(4)).add_masks(3).learn_task("a", blobs(1)).add_masks(2).save(path)
    with il.open_store(path, progress=False) as one, il.open_store(path, progress=False) as other:
        assert len(other.bank_) == 5
        one.remove_masks()
        one.learn_task("b", blobs(2))
        with pytest.raises(il.StoreError, match="masks were removed from .*; open it again"):
            other.learn_task("c", blobs(3))
    with il.open_store(path, progress=False) as again:
        assert (len(again.bank_), list(again.tasks_)) == (3, ["a", "b"])
    with il.open_store(path, readonly=True, progress=False) as reader:
        refused("opened for reading only", reader.remove_masks)


def test_another_learner_over_the_same_bank_keeps_its_masks():
    bank = il.random_bank(lenet(4).layers, 4, 0.7, seed=0)
    one, other = (quick_learner(lenet(4), bank=bank).learn_task("a", blobs(1)) for _ in range(2))
    before = logits(other)
    one.remove_task("a").remove_masks()
    assert (len(one.bank_), len(other.bank_), len(bank)) == (0, 4, 4)
    one.add_masks(1, seed=9).learn_task("b", blobs(2))
    assert torch.equal(logits(other)["a"], before["a"])


@pytest.mark.parametrize("cache_bytes", [0, 10**8])
@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("kept", ["memory", "store"])
def test_what_is_learned_after_a_removal_knows_nothing_of_the_masks_that_went(
    kept, features, cache_bytes, tmp_path
):
    """The masks' networks and features that were computed are not those of other masks."""
    path, data = tmp_path / "x.impress", blobs(5)
    made = quick_learner(lenet(3, head="own"), granularity="readout", cache_bytes=cache_bytes)
    if kept == "store":
        made.save(path)
        made = il.open_store(path, progress=False, cache_bytes=cache_bytes)
    for seed in (0, 9):
        made.add_random_masks(3, seed=seed)
        if features:
            made.learn_features(blobs(1), dimensions=3)
        made.learn_task("a", data)
        if seed == 0:
            made.remove_task("a").remove_masks()
    wanted = made.logits(data[0], "a")
    if kept == "store":
        made.close()
    else:
        made.save(path)
    assert torch.equal(il.load(path).logits(data[0], "a"), wanted)


def test_seeds_of_masks_that_are_left_are_not_used_again():
    learner = quick_learner().learn_basis("a", blobs(1)).learn_basis("b", blobs(1))
    learner.remove_task("a").remove_masks()
    learner.learn_basis("c", blobs(1))
    assert [info.recipe["seed"] for info in learner.bank_.infos] == [1, 2]
    assert learner.bank_.overlap().measured[0, 1] < 0.9


def test_learners_of_one_bank_grow_apart(tmp_path):
    made = quick_learner().add_random_masks(2)
    made.save(tmp_path / "x.impress")
    with il.open_store(tmp_path / "x.impress", progress=False) as opened:
        other = quick_learner(opened.backbone, bank=opened.bank_)
        other.add_random_masks(3, seed=7).learn_task("b", blobs(1))
        opened.learn_task("a", blobs(1)).add_random_masks(1)
        assert (len(opened.bank_), len(other.bank_)) == (3, 5)
        assert opened.tasks_["a"].num_masks == 2
        before = other.logits(blobs(1)[0], "b")
        opened.add_random_masks(20)
        assert torch.equal(other.logits(blobs(1)[0], "b"), before)
    assert len(il.load(tmp_path / "x.impress").bank_) == 23


def test_a_task_is_not_kept_over_other_masks_than_it_was_learned_over(monkeypatch):
    """As where another thread removes masks, and adds as many, while it is learned."""
    learner = quick_learner(lenet(4)).add_masks(4, seed=1)
    once = [lambda: learner.remove_masks().add_masks(4, seed=77)]

    def change(*_):
        while once:
            once.pop()()

    learner.progress = change
    refused("masks were removed while this was learned", learner.learn_task, "t", blobs(3))
    assert "t" not in learner.tasks_
    learner.learn_task("t", blobs(3))
    readouts = quick_learner(lenet(head="own"), granularity="readout").add_masks(4, seed=1)
    learn = learning.learn_readout

    def learn_readout(*given):
        readouts.remove_masks().add_masks(4, seed=77)
        return learn(*given)

    monkeypatch.setattr(learning, "learn_readout", learn_readout)
    refused("masks were removed while this was learned", readouts.learn_task, "t", blobs())
