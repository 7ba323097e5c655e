"""Lists of data sets, what a task keeps of its data, and what a new store is made from."""

import numpy as np
import pytest
import torch

from impresslearn import Examples, InputError, Recipe, load
from impresslearn.cli.data_files import (
    Reading,
    data_of,
    inputs_of,
    note_of,
    shape_of,
    usual_inputs,
)
from impresslearn.cli.learn_many import data_sets_in
from impresslearn.data.files import data_fingerprint
from impresslearn.learner.creation import Founding, check_agreement, found_learner
from impresslearn.store import describe_store
from toys import blobs, lenet, quick_learner


def test_a_note_is_kept_through_a_file(tmp_path):
    note = {"customer": "x", "site": [1, 2]}
    learner = quick_learner().learn_basis("a", blobs(), note=note)
    learner.learn_task("b", blobs(1), note=note).learn_task("c", blobs(2))
    learner.learn_homogeneous("d", blobs(3), 2, note=note).save(tmp_path / "s")
    for each in (learner, load(tmp_path / "s")):
        kept = [each.tasks_[name].history["metrics"].get("note") for name in "abcd"]
        assert kept == [note, note, None, note]


def test_the_task_learned_last_can_be_run_unrounded():
    learner = quick_learner(precision="int4", granularity="unit").add_random_masks(4)
    exact = quick_learner(granularity="unit").add_random_masks(4)
    for name, seed in (("a", 0), ("b", 1)):
        learner.learn_task(name, blobs(seed), seed=seed)
        exact.learn_task(name, blobs(seed), seed=seed)
    inputs = blobs(1)[0]
    state = learner._state
    assert state.unrounded_view(learner.tasks_.learned("a")) is None
    view = state.unrounded_view(learner.tasks_.learned("b"))
    found = view.logits(learner.backbone, inputs)
    torch.testing.assert_close(found, exact.logits(inputs, "b"))
    assert not torch.equal(found, learner.logits(inputs, "b"))
    assert not found.requires_grad


def test_what_a_task_keeps_of_its_data():
    examples = Examples(blobs()[0], blobs()[1].numpy())
    reading = Reading(label_column="y", size=8, mean=(0.1, 0.2, 0.3))
    note = note_of(examples, reading, quick_learner())
    assert data_fingerprint(examples).startswith(note["data"])
    assert note["inputs"] == {"size": 8, "mean": [0.1, 0.2, 0.3]}
    learner = quick_learner().learn_basis("a", examples, note=note)
    info = learner.tasks_["a"]
    assert (data_of(info), inputs_of(info)) == (note["data"], note["inputs"])
    assert usual_inputs(learner.tasks_) == note["inputs"]
    assert usual_inputs(quick_learner().tasks_) == {}
    later = Reading(size=4).completed(inputs_of(info))
    assert (later.size, later.mean, later.std) == (4, [0.1, 0.2, 0.3], None)


@pytest.mark.parametrize("note", [{"data": 3, "inputs": [1]}, {"other": 1}])
def test_a_note_of_another_kind_tells_nothing(note):
    info = quick_learner().learn_basis("a", blobs(), note=note).tasks_["a"]
    assert (data_of(info), inputs_of(info)) == (None, {})


def test_standardising():
    examples = Examples(3 + 2 * torch.randn(500, 16), np.zeros(500, int))
    found = Reading().preprocessing(examples, standardise=True)
    assert (found.mean, found.std) == (pytest.approx(3, abs=0.2), pytest.approx(2, abs=0.2))
    assert Reading(mean=1.0).preprocessing(examples, standardise=True).mean == 1
    with pytest.raises(InputError, match="cannot be standardised"):
        Reading().preprocessing(Examples(torch.ones(4, 2), np.zeros(4, int)), standardise=True)


def test_data_sets_of_a_folder(tmp_path):
    for name in ("b.npz", "a.CSV", "notes.txt", ".hidden.csv", "x.npy"):
        (tmp_path / name).touch()
    (tmp_path / "c.d").mkdir()
    assert list(data_sets_in(tmp_path)) == ["a", "b", "c.d"]
    (tmp_path / "b.csv").touch()
    with pytest.raises(InputError, match="would both be task 'b'"):
        data_sets_in(tmp_path)


def test_a_learner_is_founded_on_the_shape_of_the_data():
    learner = found_learner(Founding(network={"widths": [5, 4]}, seed=3), 7, (2, 3, 4))
    assert learner.backbone.spec["in_features"] == 24
    assert (learner.backbone.num_classes, learner.backbone.spec["seed"], learner.seed) == (7, 3, 3)
    learner = found_learner(Founding("resnet18", {"width": 2}, classes=9), 7, (1, 8, 8))
    assert learner.backbone.spec["in_channels"] == 1
    assert learner.backbone.num_classes == 9
    assert shape_of(Examples(torch.zeros(2, 1, 8, 8), np.zeros(2))) == (1, 8, 8)


def test_settings_agree_or_are_named(tmp_path):
    learner = quick_learner(lenet(), task_recipe=Recipe(lr=0.5))
    learner.save(tmp_path / "s")
    told = describe_store(tmp_path / "s")
    check_agreement(Founding(), told, "s")
    check_agreement(Founding("lenet_300_100", {"in_features": 16}, 3, "none", 0), told, "s")
    for given, words in (
        (Founding("resnet18"), "backbone 'lenet_300_100', not 'resnet18'"),
        (Founding(classes=4), "classes 3, not 4"),
        (Founding(output_scale=True), "output_scale False, not True"),
        (Founding(network={"depth": 3}), "depth None, not 3"),
        (Founding(preset="default"), "as in the preset 'default'"),
    ):
        with pytest.raises(InputError, match=words):
            check_agreement(given, told, "s")
