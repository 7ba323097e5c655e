"""Learners on a CUDA device learn, keep, move and answer as on a processor."""

import pytest
import torch

import impresslearn as il
from impresslearn import methods
from impresslearn.learner import ImpressLearner
from impresslearn.masks import random_bank
from impresslearn.training.loop import Recipe
from toys import KINDS, QUICK, blobs, lenet, mlp, pictures, quick_learner, resnet

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICE = "cuda"


def learner(network=None, masks=8, **settings):
    network = (lenet() if network is None else network).to(DEVICE)
    bank = random_bank(network.layers, masks, 0.5, device=DEVICE) if masks else None
    return quick_learner(network, bank=bank, **settings)


def logits(learner, data, names):
    return {name: learner.logits(data[0], name).cpu() for name in names}


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_moves_between_devices(kind, tmp_path):
    data = blobs()
    first, second = (learner(**KINDS[kind]).learn_task("a", data) for _ in range(2))
    assert first.score(data, "a") > 0.8
    before = logits(first, data, "a")
    assert torch.equal(before["a"], second.logits(data[0], "a").cpu())  # the same bits twice
    first.save(tmp_path / "a.impress")
    again = il.load(tmp_path / "a.impress", device=DEVICE)
    assert torch.equal(before["a"], again.logits(data[0], "a").cpu())
    on_cpu = il.load(tmp_path / "a.impress")
    assert on_cpu.tasks_["a"].bytes == first.tasks_["a"].bytes
    torch.testing.assert_close(on_cpu.logits(data[0], "a"), before["a"], rtol=1e-3, atol=1e-3)
    assert (on_cpu.predict(data[0], "a") == first.predict(data[0], "a")).mean() > 0.97


@pytest.mark.parametrize("norm", ["batch", "per_task", "shared", "group"])
def test_basis_tasks_of_a_residual_network(norm):
    machine = learner(resnet(norm), masks=0)
    tasks = {f"b{seed}": pictures(seed) for seed in range(2)}
    for name, data in tasks.items():
        machine.learn_basis(name, data)
    before = logits(machine, tasks["b0"], tasks)
    machine.learn_task("new", pictures(5))
    assert machine.score(pictures(5), "new") > 0.6
    after = logits(machine, tasks["b0"], tasks)
    assert all(torch.equal(before[name], after[name]) for name in tasks)


def test_side_by_side_as_in_turn():
    tasks = {f"t{seed}": blobs(seed) for seed in range(6)}
    brief = Recipe(lr=0.02, epochs=2, min_steps=6, batch_size=16)
    beside = learner(task_recipe=brief).learn_tasks(tasks, batched=True)
    in_turn = learner(task_recipe=brief).learn_tasks(tasks, batched=False)
    for name, ours in beside.coefficients_.items():
        for pair in zip(ours.tensors(), in_turn.coefficients_[name].tensors(), strict=True):
            torch.testing.assert_close(*pair, rtol=0, atol=1e-3)


@pytest.mark.parametrize("preset", ["few_labels", "pretrained"])
def test_presets_over_a_network_of_ones_own(preset, tmp_path):
    network = il.adapt(mlp(32, 4), input_shape=(16,)).to(DEVICE)
    recipe = {} if preset == "few_labels" else {"task_recipe": QUICK}
    machine = ImpressLearner.from_preset(network, preset, progress=False, **recipe)
    tasks = {f"t{seed}": blobs(seed, count=300) for seed in range(3)}
    machine.learn_tasks(tasks)
    machine.update_task("t0", blobs(0, count=90))
    inputs = tasks["t1"][0]
    assert machine.infer_task(inputs[:32]).best == "t1"
    assert (machine.predict(inputs) == machine.predict(inputs, "t1")).mean() > 0.9
    machine.save(tmp_path / "a.impress")
    on_cpu = il.load(tmp_path / "a.impress", module=mlp(32, 4))
    for name, (rows, labels) in tasks.items():
        assert on_cpu.score((rows, labels), name) > 0.8
        exported = machine.export(name)(rows.to(DEVICE)).cpu()
        torch.testing.assert_close(exported, machine.logits(rows, name).cpu())


@pytest.mark.parametrize("method", ["exhaustive", "one_shot", "alpha"])
def test_a_task_is_inferred(method):
    machine = learner(masks=0)
    tasks = {f"b{seed}": blobs(seed) for seed in range(3)}
    for name, data in tasks.items():
        machine.learn_basis(name, data)
    assert machine.infer_task(tasks["b1"][0], method=method).best == "b1"


def test_kept_features_and_a_class_map():
    network = il.adapt(mlp(32, 4), input_shape=(16,)).to(DEVICE)
    machine = ImpressLearner.from_preset(network, "few_labels", progress=False)
    tasks = {}
    for seed in range(3):
        inputs, labels = blobs(seed, count=120)
        tasks[f"t{seed}"] = inputs, [f"{seed}.{label}" for label in labels.tolist()]
    machine.learn_features(*tasks.values(), dimensions=8)
    for name, (inputs, labels) in tasks.items():
        machine.learn_task(name, (machine.features(inputs), labels))
    assert machine.score(tasks["t2"], "t2") > 0.8
    machine.tell_apart(tasks)
    assert machine.infer_task(tasks["t1"][0][:32]).best == "t1"


def test_other_methods_learn_on_it():
    network = lenet().to(DEVICE)
    quick = {"recipe": QUICK, "progress": False}
    for method in (
        methods.SupSup(network, basis_recipe=QUICK, progress=False),
        methods.SequentialFineTuning(network, **quick),
        methods.lora(network, rank=2, **quick),
        methods.Hybrid(network, random_bank(network.layers, 3, device=DEVICE), **quick),
    ):
        method.learn_task("a", blobs())
        assert method.score(blobs(), "a") > 0.6
