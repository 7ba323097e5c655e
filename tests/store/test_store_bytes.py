"""What a task is said to cost is what the store keeps for it, in memory as in a file."""

import pytest
from forgery import sql
from storekit import QUICKLY, small_learner

import impresslearn as il
from impresslearn.coefficients.quantisation import PRECISIONS
from impresslearn.masks import codec
from impresslearn.state.tasks import label_map_bytes
from toys import blobs, pictures, quick_learner, resnet

COLUMNS = """
    SELECT coalesce(length(m.bits), 0), coalesce(length(t.coefficients), 0),
           coalesce(length(t.statistics), 0), coalesce(length(t.profile), 0)
    FROM tasks AS t LEFT JOIN masks AS m ON m.name = t.mask WHERE t.name = ?
"""


def check(learner, path):
    learner.save(path)
    with il.open_store(path, readonly=True, progress=False) as bound, sql(path) as connection:
        for name, info in learner.tasks_.items():
            found = connection.execute(COLUMNS, [name]).fetchone()
            kept = zip(("mask", "coefficients", "statistics", "entropies"), found, strict=True)
            assert info.breakdown == dict(kept) | {"labels": label_map_bytes(info.classes)}
            assert info == bound.tasks_[name] == il.load(path).tasks_[name]
            assert info.bytes == sum(info.breakdown.values())


@pytest.mark.parametrize("granularity", ["layer", "unit"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_coefficients_and_masks(tmp_path, precision, granularity):
    scales = {"output_scale": True, "input_scale": granularity == "unit"}
    learner = small_learner(precision=precision, granularity=granularity, **scales)
    inputs, labels = blobs(3)
    learner.learn_task("words", (inputs, [("cat", "Ünter", "x")[label] for label in labels]))
    learner.learn_homogeneous("seeds", blobs(4), 2)
    check(learner, tmp_path / "a.impress")


@pytest.mark.parametrize("norm", ["per_task", "shared"])
def test_norm_statistics(tmp_path, norm):
    learner = quick_learner(resnet(norm), **QUICKLY)
    learner.learn_basis("a", pictures(0)).learn_task("b", pictures(1))
    assert (learner.tasks_["b"].breakdown["statistics"] > 0) == (norm == "per_task")
    check(learner, tmp_path / "a.impress")


def test_a_mask_is_coded_once(tmp_path, monkeypatch):
    coded, encode = [], codec._write_layer
    monkeypatch.setattr(codec, "_write_layer", lambda *how: [coded.append(1), encode(*how)])
    learner = quick_learner(**QUICKLY).learn_basis("a", blobs(0)).save(tmp_path / "a")
    il.load(tmp_path / "a").save(tmp_path / "b")
    assert il.load(tmp_path / "b").tasks_["a"] == learner.tasks_["a"]
    with il.open_store(tmp_path / "b", **QUICKLY, progress=False) as bound:
        bound.learn_basis("b", blobs(1))
        assert bound.tasks_["b"].bytes > 0
    assert len(coded) == 2 * 3
