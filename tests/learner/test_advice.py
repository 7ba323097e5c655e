"""What `advise` recommends fits the limits and works as it says; what it cannot do is a line."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
import torch

import impresslearn as il
from impresslearn.learner import advice as advice_module
from impresslearn.learner.presets import PRESETS
from toys import QUICK, blobs, lenet, pictures

TASKS = {f"task-{seed}": blobs(seed, count=120) for seed in range(4)}


@pytest.fixture(autouse=True)
def quick_presets(monkeypatch):
    """Presets that train for 60 steps, and few examples held back."""
    monkeypatch.setattr(advice_module, "ENOUGH_HELD_BACK", 60)
    for name, preset in PRESETS.items():
        quick = replace(preset, task_recipe=QUICK, basis_recipe=QUICK)
        monkeypatch.setitem(PRESETS, name, quick)


def advice(tasks=TASKS, backbone=None, budgets=(60, 150), **settings):
    return il.advise(tasks, backbone or lenet(), budgets=budgets, progress=False, **settings)


def methods(of):
    return {trial.candidate.name for trial in of.trials}


def pretended(monkeypatch, accuracy=lambda trial: 0.5):
    """Trials that learn nothing: what each was shown, by its method and budget."""
    seen = {}

    def learn(trial, name, train, held_back):
        key = trial.candidate.name, trial.budget
        seen.setdefault(key, []).append((name, train.labels, held_back.labels))
        trial.accuracies.append(accuracy(trial))
        trial.sizes.append(trial.budget)
        trial.held_back.append(len(held_back))
        trial.seconds.append(1.0)

    monkeypatch.setattr(advice_module.Trial, "learn", learn)
    return seen


def test_the_recommended_learner_keeps_what_was_promised():
    found = advice(TASKS | {f"more-{seed}": blobs(seed, count=120) for seed in (4, 5)})
    assert list(found.points) == [60, 150]
    for budget, trial in found.points.items():
        assert max(trial.sizes) <= budget
    assert found.best is found.points[found.budget]
    top = max(trial.accuracy for trial in found.points.values())
    assert found.best.accuracy >= top - found.best.error - 0.05
    assert top > 0.8
    assert {"basis masks per unit", "one integer per weight"} <= methods(found)
    learner = found.learner(progress=False)
    assert list(learner.tasks_) == list(found.basis)
    learner.learn_task("new", blobs(9, count=120))
    assert learner.tasks_["new"].bytes <= found.budget
    assert learner.score(blobs(9, count=300), "new") > 0.6
    for name, value in found.settings.items():
        assert getattr(learner, name) == value


def test_the_smallest_budget_within_the_error_of_the_best_is_recommended(monkeypatch):
    pretended(monkeypatch, lambda trial: {60: 0.7, 100: 0.88, 150: 0.9}[trial.budget])
    found = advice(budgets=[150, 60, 100])
    assert list(found.points) == [60, 100, 150]
    assert found.budget == 100  # of 72 examples held back, 2 points are less than one error
    assert found.settings["max_bytes"] == 100
    lines = found.table().text().splitlines()
    assert [line.startswith("→") for line in lines[2:5]] == [False, True, False]
    assert max(map(len, lines)) <= 80


def test_all_methods_are_compared_on_the_same_examples_held_back(monkeypatch):
    seen = pretended(monkeypatch)
    advice(dict(list(TASKS.items())[:2]), seed=-1)
    longest = max(seen.values(), key=len)
    assert len(longest) == 3  # of 24 examples held back each, until there are 60
    for cases in seen.values():
        for (name, train, held), (expected, *labels) in zip(cases, longest, strict=False):
            assert name == expected
            assert [train.tolist(), held.tolist()] == [part.tolist() for part in labels]
            assert len(train) + len(held) == 120


def test_what_fails_on_a_later_task_is_skipped(monkeypatch):
    def accuracy(trial):
        if trial.budget == 60 and trial.accuracies:
            raise il.InputError("too many labels")
        return 0.5

    pretended(monkeypatch, accuracy)
    found = advice()
    assert list(found.points) == [150]
    assert "too many labels" in found.skipped.values()


def test_when_the_time_is_over_the_curve_has_what_was_tried(monkeypatch):
    steps = count()
    clock = SimpleNamespace(monotonic=lambda: float(next(steps)))
    monkeypatch.setattr(advice_module, "time", clock)
    found = advice(max_seconds=20)
    assert 0 < len(found.trials) < 8
    assert set(found.skipped.values()) == {"max_seconds were over"}
    assert "60 disjoint masks per unit (max_seconds were over)" in " ".join(repr(found).split())


def test_without_a_network_one_is_made_for_the_data(monkeypatch):
    pretended(monkeypatch)
    images = {f"task-{seed}": pictures(seed, count=60, size=4) for seed in range(2)}
    found = il.advise(images, budgets=[400], progress=False)
    assert {"readout of the inputs", "one integer per weight"} <= methods(found)
    learner = found.learner(progress=False).learn_task("new", pictures(7, count=60, size=4))
    assert learner.score(pictures(7, count=60, size=4), "new") > 0.9


def test_methods_suit_the_network(monkeypatch):
    pretended(monkeypatch)
    trained = il.adapt(torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 3)))
    presets = {trial.candidate.preset for trial in advice(backbone=trained).trials}
    assert presets == {"per_weight", "few_labels", "pretrained"}


def test_one_task_and_the_chart(tmp_path, monkeypatch):
    seen = pretended(monkeypatch)
    found = advice(blobs(0, count=120))
    assert [name for name, *_ in max(seen.values(), key=len)] == ["task", "task (2)", "task (3)"]
    found.chart().save(tmp_path / "curve.svg")
    assert "<svg" in (tmp_path / "curve.svg").read_text()
