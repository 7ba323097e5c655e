"""Tasks that travel from one machine to another."""

import pickle

import pandas as pd
import torch
from storekit import INPUTS

import impresslearn as il
from impresslearn.errors import InputError
from toys import blobs, few_labels, lenet, mlp, quick_learner, refused


def base(seed: int = 0) -> il.ImpressLearner:
    return quick_learner(lenet()).add_random_masks(3, seed=seed)


def travelled(learner: il.ImpressLearner, *names: str) -> list[object]:
    return pickle.loads(pickle.dumps(learner.encoded(names)))


def test_tasks_and_new_versions_come_home_bit_for_bit():
    home, away = base(), base()
    away.learn_task("a", blobs(0)).learn_task("b", blobs(1))
    assert home.commit_encoded(travelled(away, "a", "b")) == {"a": "new", "b": "new"}
    away.update_task("a", blobs(2))
    tasks = travelled(away, "a", "b")
    assert home.commit_encoded(tasks, on_conflict="skip") == {"a": "skipped", "b": "unchanged"}
    refused = home.commit_encoded(tasks)
    assert type(refused["a"]) is InputError
    assert "learned already" in str(refused["a"])
    assert refused["b"] == "unchanged"  # the same numbers are no conflict
    outcome = home.commit_encoded(tasks, on_conflict="version")
    assert outcome == {"a": "version 2", "b": "unchanged"}
    for name in "ab":
        assert torch.equal(home.logits(INPUTS, name), away.logits(INPUTS, name))
    assert [info.version for info in home.versions("a")] == [1, 2]
    assert home.commit_encoded(tasks) == {"a": "unchanged", "b": "unchanged"}


def test_a_bad_task_stops_no_other():
    home, away = base(), base()
    away.learn_task("a", blobs(0))
    others = {
        "other masks": base(seed=1),
        "more masks": base().add_random_masks(1),
        "other network": quick_learner(lenet(seed=5)).add_random_masks(3, seed=0),
        "other scale": quick_learner(preprocessing=il.Preprocessing(std=2.0)).add_random_masks(3),
    }
    tasks = []
    for name, learner in others.items():
        tasks += learner.learn_task(name, blobs(0)).encoded([name])
    outcome = home.commit_encoded([*tasks, *away.encoded(["a"])])
    assert outcome.pop("a") == "new"
    for name, error in outcome.items():
        assert f"task {name!r} was learned over another network" in str(error)
        assert "\n" not in str(error)
    assert list(home.tasks_) == ["a"]


def test_tasks_read_the_columns_that_they_were_learned_from(tmp_path):
    inputs, labels = blobs(0)
    table = pd.DataFrame(inputs.numpy()).add_prefix("x")
    turned = table[table.columns[::-1]], labels
    base().save(path := tmp_path / "a.impress")
    with il.open_store(path, progress=False) as home, il.open_store(path) as other:
        home.progress = lambda *_: "first" in other.tasks_ or other.learn_task("first", turned)
        refused("columns", home.learn_task, "a", (table, labels))  # `other` was faster
        away = base().learn_task("a", (table, labels))
        assert "columns" in str(home.commit_encoded(travelled(away, "a"))["a"])
        home.save(tmp_path / "base", tasks=[])
        away = il.load(tmp_path / "base").learn_task("a", (table, labels))
        assert home.commit_encoded(travelled(away, "a")) == {"a": "new"}
        assert home.score(turned, "a") == away.score(turned, "a") > 0.9


def test_shared_features_must_be_the_same():
    home, away, third = (few_labels(mlp()) for _ in range(3))
    for each, data in ((home, 0), (away, 0), (third, 1)):
        each.learn_task("first", blobs(data)).learn_task("b", blobs(2))
    home.remove_task("b")
    assert home.commit_encoded(away.encoded(["b"])) == {"b": "new"}  # the same first task
    assert torch.equal(home.logits(INPUTS, "b"), away.logits(INPUTS, "b"))
    home.remove_task("b")
    assert "shared features" in str(home.commit_encoded(third.encoded(["b"]))["b"])
    assert "b" not in home.tasks_
