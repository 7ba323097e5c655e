"""A budget of bytes, which every task keeps in one training."""

import pytest

import impresslearn as il
from impresslearn.errors import InputError
from impresslearn.training.loop import TaskTraining
from toys import refused

STREAM = il.streams.rotated_digits(tasks=4, seed=0)
QUICK = il.Recipe(lr=0.02, epochs=0, min_steps=150)
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
def test_every_task_keeps_to_its_budget_and_uses_most_of_it(way, tmp_path):
    price = {"weight": 0.3, "unit": 0.1, "readout": 0.0003}[way]
    free = learned(way, bit_price=price)
    most = min(task.bytes for task in free.tasks_.values()) * 4 // 5
    capped = learned(way, bit_price=price, max_bytes=most)
    for task in STREAM:
        assert 0.6 * most <= capped.tasks_[task.name].bytes <= most
        assert capped.score(task.test, task.name) > free.score(task.test, task.name) - 0.15
    capped.save(tmp_path / "s.impress")
    with il.open_store(tmp_path / "s.impress") as store:
        assert store.max_bytes == most
        store.update_task(STREAM.names[0], STREAM[2].train)
        assert store.tasks_[STREAM.names[0]].bytes <= most


def test_a_readout_that_fits_is_as_it_was():
    free = learned("readout", bit_price=0.0003)
    most = max(task.bytes for task in free.tasks_.values()) - 1
    capped = learned("readout", bit_price=0.0003, max_bytes=most)
    inputs = STREAM[0].test.inputs[:8]
    for name, task in free.tasks_.items():
        same = capped.logits(inputs, name).equal(free.logits(inputs, name))
        assert same is (task.bytes <= most)


def test_a_training_is_done_once(monkeypatch):
    trainings = []
    fit = TaskTraining.fit
    monkeypatch.setattr(TaskTraining, "fit", lambda *of: trainings.append(1) or fit(*of))
    learner = learner_of("unit", bit_price=0.1, max_bytes=250)
    assert learner.learn_task("a", STREAM[0].train).tasks_["a"].bytes <= 250
    assert trainings == [1]


def test_what_cannot_be_met_is_refused_and_nothing_is_kept():
    for way in WAYS:
        learner = learner_of(way, max_bytes=20)
        line = "task 'a' does not fit into max_bytes = 20: .* make a learner with a larger one"
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
