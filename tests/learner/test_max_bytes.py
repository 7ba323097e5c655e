"""Tasks that may take so many bytes: the price of bits is raised until they do not take more."""

from itertools import count
from types import SimpleNamespace

import pytest

import impresslearn as il
from impresslearn.errors import InputError
from impresslearn.learner import trainer
from toys import refused

STREAM = il.streams.rotated_digits(tasks=4, seed=0)
QUICK = il.Recipe(lr=0.02, epochs=0, min_steps=60)
WAYS = {
    "weight": ("per_weight", {"task_recipe": QUICK}, 0),
    "unit": ("default", {"granularity": "unit", "precision": "coded", "task_recipe": QUICK}, 20),
    "readout": ("few_labels", {}, 0),
}


def learner_of(way, **settings):
    preset, own, masks = WAYS[way]
    head = "own" if preset == "few_labels" else "shared"
    network = {"in_features": 64, "widths": [40, 20], "head": head}
    backbone = il.create_backbone("lenet_300_100", 10, **network)
    learner = il.ImpressLearner.from_preset(backbone, preset, progress=False, **own, **settings)
    return learner.add_random_masks(masks) if masks else learner


def learned(way, **settings):
    learner = learner_of(way, **settings)
    return learner.learn_tasks({task.name: task.train for task in STREAM})


@pytest.mark.parametrize("way", WAYS)
def test_no_task_takes_more_and_those_that_fit_are_as_they_were(way, tmp_path):
    price = {"weight": 0.3, "unit": 0.1, "readout": 0.0003}[way]
    free = learned(way, bit_price=price)
    most = max(task.bytes for task in free.tasks_.values()) - 1
    capped = learned(way, bit_price=price, max_bytes=most)
    inputs = STREAM[0].test.inputs[:8]
    for name, task in capped.tasks_.items():
        assert task.bytes <= most
        fits = free.tasks_[name].bytes <= most
        if way != "readout":
            assert (task.history["recipe"]["bit_price"] > price) is not fits
        same = capped.logits(inputs, name).equal(free.logits(inputs, name))
        assert same is fits
    capped.save(tmp_path / "s.impress")
    with il.open_store(tmp_path / "s.impress") as store:
        assert store.max_bytes == most
        store.update_task(STREAM.names[0], STREAM[2].train)
        assert store.tasks_[STREAM.names[0]].bytes <= most


def test_the_seconds_of_all_attempts_count(monkeypatch):
    free = learner_of("unit", bit_price=0.1).learn_task("a", STREAM[0].train)
    capped = learner_of("unit", bit_price=0.1, max_bytes=free.tasks_["a"].bytes - 1)
    clock = count(step=100.0)
    with monkeypatch.context() as patched:
        patched.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
        capped.learn_task("a", STREAM[0].train)
    assert capped.tasks_["a"].history["metrics"]["seconds"] >= 200  # 100 an attempt


def test_what_cannot_be_met_is_refused_and_nothing_is_kept():
    learner = learner_of("weight", max_bytes=30)
    line = (
        "task 'a' takes .* bytes even at a bit_price of .*; max_bytes is 30; make a learner with a"
    )
    refused(line, learner.learn_task, "a", STREAM[0].train)
    assert not learner.tasks_


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"max_bytes": 100}, "precision .coded. and a bit_price above 0"),
        ({"max_bytes": 100, "precision": "coded", "bit_price": 0}, "bit_price above 0"),
        ({"max_bytes": 0, "precision": "coded"}, "max_bytes must be"),
        ({"max_bytes": "2kB", "precision": "coded"}, "max_bytes must be"),
    ],
)
def test_settings_that_raise_no_price(settings, line):
    with pytest.raises(InputError, match=line):
        il.ImpressLearner(il.create_backbone(in_features=64), **settings)
