"""A learner's settings and presets: fixed once it is made, checked, kept through a file."""

import warnings
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import torch
from torch import nn

import impresslearn as il
from impresslearn import ImpressLearner, MaskBank, Prepared, Preprocessing, Recipe, SupSup
from impresslearn.errors import FixedSettingError
from impresslearn.learner.presets import list_presets, preset
from toys import blobs, lenet, quick_learner, refused

OTHER = {
    "sparsity": 0.5,
    "allocation": "uniform",
    "granularity": "unit",
    "output_scale": True,
    "precision": "coded",
    "bit_price": 0.5,
    "penalty": 0.1,
    "basis_recipe": Recipe(lr=0.5),
    "task_recipe": Recipe(lr=0.5),
    "score_rule": "score",
    "seed": 7,
    "preprocessing": Preprocessing(mean=1.0),
}


def test_settings_are_kept_and_fixed_once_the_learner_is_made(tmp_path):
    learner = quick_learner(**OTHER).add_random_masks(1)
    learner.save(tmp_path / "s")
    for each in (learner, il.load(tmp_path / "s")):
        for name in (*OTHER, "backbone", "cache_bytes", "settings"):
            before = getattr(each, name)
            assert before == OTHER.get(name, before)
            with pytest.raises(FixedSettingError, match=f"^{name} of ImpressLearner is fixed"):
                setattr(each, name, 1)
            assert getattr(each, name) is before
    learner.progress = True  # what is shown is no part of what is learned


def test_numpy_numbers_become_plain_ones_and_can_be_saved(tmp_path):
    recipe = Recipe(lr=np.float32(0.03), epochs=np.int64(0), min_steps=np.int32(5), batch_size=32)
    settings = {"seed": np.int64(3), "sparsity": np.float64(0.5), "output_scale": np.True_}
    settings |= {"granularity": np.str_("unit"), "basis_recipe": recipe, "task_recipe": recipe}
    learner = quick_learner(**settings)
    learner.learn_homogeneous(np.str_("a"), blobs(), np.int8(2), seeds=np.arange(2))
    learner.add_random_masks(np.int64(1), seed=np.int16(4))
    note = {"site": np.int64(2), "means": np.arange(2.0)}
    learner.learn_task(np.str_("b"), blobs(1), seed=np.uint8(9), note=note).save(tmp_path / "s")
    again = il.load(tmp_path / "s")
    assert again.settings == learner.settings
    assert again.tasks_["b"].history["metrics"]["note"] == {"site": 2, "means": [0.0, 1.0]}
    assert torch.equal(again.logits(blobs(1)[0], "b"), learner.logits(blobs(1)[0], "b"))


WILD = Recipe(lr=1e38, schedule="constant", epochs=0, min_steps=4)  # would fail if it trained


NOTES = [
    *({"a": {1, 2}}, {"a": float("nan")}, {"a": "\ud800"}, {"\udcff": 1}),
    {"deep": reduce(lambda inner, _: [inner], range(99_999), [])},
]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"name": "a\ud800"}, "a task's name"),
        ({"seed": 2**80}, "seed must be an integer"),
        *[({"note": note}, "^a note [^\n]*$") for note in NOTES],
    ],
)
def test_what_no_file_could_keep_is_refused_before_training(given, line, tmp_path):
    quick_learner().add_random_masks(1).save(tmp_path / "s")
    with il.open_store(tmp_path / "s", task_recipe=WILD, basis_recipe=WILD) as learner:
        for verb in (learner.learn_task, learner.learn_basis):
            refused(line, verb, **{"name": "a", "data": blobs()} | given)
        assert (len(learner.tasks_), len(learner.bank_)) == (0, 1)


def test_only_small_networks_whose_last_block_is_read_get_masks():
    for units, masks in ((1000, 16), (1001, 0)):
        network = nn.Sequential(nn.Linear(4, units), nn.ReLU(), nn.Linear(units, 2))
        blocks = il.BlockFeatures(network, torch.eye(4), blocks=["1"])
        for module, count in ((network, masks), (blocks, 0)):
            learner = ImpressLearner.from_preset(il.adapt(module), "pretrained")
            assert (len(learner.bank_), learner.settings.staged) == (count, not count)


def pixels():
    inputs, labels = blobs()
    scaled = (inputs - inputs.min()) / (inputs.max() - inputs.min())
    return (255 * scaled).to(torch.uint8), labels


def test_the_first_task_says_what_integers_are(tmp_path):
    inputs, labels = pixels()
    for name, first in {"pixels": inputs, "none": inputs.long()}.items():
        learner = quick_learner().add_random_masks(4).learn_task("a", (first, labels))
        learner.save(tmp_path / name)
    learner = il.load(tmp_path / "pixels")
    for pixel in (learner, il.open_store(tmp_path / "pixels", readonly=True)):
        expected = pixel.logits(inputs, "a")
        assert pixel.logits(inputs.long(), "a").equal(expected)
        assert pixel.logits(inputs / 255, "a").equal(expected)
        line = r"pixels \(as set, or as in its first task\): .* got floats from 0 to 255"
        refused(line, pixel.logits, inputs.float(), "a")
        refused(line, pixel.score, (inputs.float(), labels), "a")
    tasks = {"b": (inputs.long(), labels), "c": (inputs, labels)}
    refused(line, learner.learn_tasks, tasks | {"d": (inputs.float(), labels)})
    plain = il.load(tmp_path / "none")
    assert plain.logits(inputs.float(), "a").equal(plain.logits(inputs.long(), "a"))
    refused("these inputs are pixels .*, but other numbers are", plain.predict, inputs, "a")


def test_a_preset_takes_entries_of_its_recipes():
    def learner(**settings):
        return ImpressLearner.from_preset(lenet(), "per_weight", **settings)

    whole = learner().task_recipe
    changed = learner(recipe={"epochs": 0}, task_recipe={"min_steps": 7})
    assert changed.task_recipe == replace(whole, epochs=0, min_steps=7)
    assert changed.task_recipe.label_smoothing
    assert changed.basis_recipe == replace(learner().basis_recipe, epochs=0)
    assert learner(task_recipe=Recipe(epochs=1)).task_recipe == Recipe(epochs=1)


def test_a_bank_that_was_trained_on_another_network_is_refused(tmp_path):
    learner = quick_learner().learn_basis("a", blobs()).add_random_masks(2)
    learner.save(tmp_path / "a.impress")
    opened = il.load(tmp_path / "a.impress")
    for bank in (learner.bank_, opened.bank_, learner.bank_.to("cpu")):
        refused("trained on other weights", quick_learner, lenet(seed=9), bank=bank)
        assert len(quick_learner(lenet(), bank=bank).bank_) == 3
    copied = MaskBank(learner.bank_.layers)
    copied.append("a", learner.bank_.mask("a"))
    drawn = quick_learner().add_random_masks(2).bank_
    for bank in (copied, drawn):
        quick_learner(lenet(seed=9), bank=bank).learn_task("t", blobs())


def test_inputs_far_from_the_scale_of_networks_are_told_of_once_for_each_caller():
    inputs, labels = blobs()
    raw = 100 + 50 * inputs
    how = Preprocessing.standardising(raw)
    with pytest.warns(UserWarning, match="a deviation of 1.*Preprocessing.standardising") as told:
        quick_learner().learn_basis("a", (raw, labels))
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick_learner(preprocessing=how).learn_basis("a", (raw, labels))
        quick_learner().learn_basis("a", (inputs, labels))


def test_prepared_data_and_removals_keep_the_scale(tmp_path):
    first = pixels()
    integers, labels = first[0].long(), first[1]
    prepared = Prepared((first[0] / 255, labels))
    learner = quick_learner().add_random_masks(12).learn_tasks({"a": first, "p": prepared})
    learner.learn_task("b", first)
    before = learner.logits(integers, "b")
    learner.update_task("a", prepared).save(tmp_path / "a.impress")
    assert il.load(tmp_path / "a.impress").logits(integers, "b").equal(before)
    assert learner.remove_task("a").logits(integers, "b").equal(before)


@pytest.mark.parametrize("name", [each for each in list_presets() if not preset(each).own_head])
def test_every_preset_makes_a_network_and_learners(name):
    chosen = preset(name)
    backbone = lenet(init=chosen.init, gain=chosen.gain)
    learner = ImpressLearner.from_preset(backbone, name, seed=5, progress=False)
    names = ("allocation", "basis_recipe", "task_recipe", "penalty", "score_rule", "sparsity")
    settings = {name: getattr(chosen, name) for name in names} | dict(chosen.more)
    for setting, value in settings.items():
        assert getattr(learner, setting) == value
        if name == "default":
            assert getattr(ImpressLearner(), setting) == value
    assert learner.seed == 5
    SupSup(backbone, allocation=chosen.allocation, score_rule=chosen.score_rule)
    assert learner.add_random_masks(2).learn_task("t", blobs()).tasks_["t"].bytes
