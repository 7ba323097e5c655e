"""The rivals: each learns, costs what it says, repeats with its seed and changes no other task."""

from importlib.util import find_spec

import pytest
import torch
from benchmarks.rivals import METHODS, BestMask, bitfit, create_method, pruned
from benchmarks.rivals.adapters import ADAPTERS
from benchmarks.rivals.weights import _main_directions

import impresslearn as il
from impresslearn.masks.bank import MaskBank
from impresslearn.masks.sparsity import ones_per_layer
from toys import QUICK, ConvNet, blobs, lenet, pictures, refused

RECIPE = {"lr": 0.03, "epochs": 0, "min_steps": 200, "batch_size": 32}
SETTINGS = {
    "pruned": {"recipe": RECIPE | {"lr": 0.01}, "sparsity": 0.5},
    "fourierft": {"recipe": RECIPE | {"lr": 0.1}},
    "bilora": {"recipe": RECIPE | {"lr": 0.01}, "rank": 8},
    "share": {"earlier": [blobs(5), blobs(6)], "count": 4, "rank": 2, "lora_lr": 0.03},
    "finetune_separate": {"recipe": RECIPE | {"lr": 0.01}},
}
DATA = blobs()


def made(name, backbone=None, **settings):
    if name in (*ADAPTERS, "share") and find_spec("peft") is None:
        pytest.skip("PEFT is not installed")
    chosen = {"recipe": RECIPE} | SETTINGS.get(name, {}) | settings
    return create_method(name, lenet() if backbone is None else backbone, **chosen)


# Of these two, one needs norms, one masks.
@pytest.mark.parametrize("name", sorted(set(METHODS) - {"bitfit", "hybrid"}))
def test_each_method_learns_repeats_and_counts_its_bytes(name):
    backbone = lenet()
    before, state = backbone.fingerprint(), torch.get_rng_state()
    method, again = (made(name, backbone, seed=3).learn_task("a", DATA) for _ in range(2))
    assert method.score(DATA, "a") > 0.5
    predicted = method.predict(DATA[0], "a")
    assert (predicted == again.predict(DATA[0], "a")).all()
    assert (predicted == DATA[1].numpy()).mean() == pytest.approx(method.score(DATA, "a"))
    method.learn_task("b", blobs(5))
    assert (method.predict(DATA[0], "a") == predicted).all()
    info = method.tasks_["a"]
    assert info.bytes == sum(info.breakdown.values())
    assert backbone.fingerprint() == before
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("name", "settings", "numbers"),
    [
        ("pranc", {"bases": 40}, 40),
        ("nola", {"bases": 40}, 2 * 3 * 40),
        ("lora", {"rank": 3}, 3 * (16 + 24 + 24 + 12 + 12 + 3)),
        ("vera", {"rank": 30}, 3 * 30 + 24 + 12 + 3),
        ("unilora", {"config": {"theta_d_length": 70}}, 70),
        ("tinylora", {"config": {"u": 70}}, 70),
        ("lora_xs", {"rank": 3}, 3 * 3 * 3),
        ("share", {}, 2 * (3 * 4 + 4 + 4 + 3)),  # the head has three outputs
        ("fourierft", {"config": {"n_frequency": 100}}, 100 + 100 + 36),  # the head has no more
    ],
)
def test_what_a_seed_redraws_is_not_kept_and_codes_are_small(name, settings, numbers):
    exact, coded = (
        made(name, precision=precision, **settings).learn_task("a", DATA)
        for precision in ("float32", "coded")
    )
    assert exact.tasks_["a"].breakdown["weights"] == 4 * numbers
    assert coded.tasks_["a"].bytes < 0.6 * exact.tasks_["a"].bytes


@pytest.mark.parametrize(("name", "rank"), [("lora_xs", 2), ("tinylora", 2), ("bilora", 1)])
def test_changes_lie_between_singular_vectors_or_have_a_bit_a_number(name, rank):
    backbone, weight = il.adapt(ConvNet()), "body.0.weight"
    method = made(name, backbone, rank=rank).learn_task("a", pictures())
    frozen = backbone.weights[weight].flatten(1)
    change = method._views["a"].weights[weight].flatten(1) - frozen
    assert change.abs().max() > 0.01
    if name == "bilora":  # products of two numbers of B and two of A
        assert len(change.round(decimals=4).unique()) <= 2 * 2
        return
    left, _, right = torch.linalg.svd(frozen, full_matrices=False)
    left, right = left[:, :rank], right[:rank]
    assert torch.allclose(left @ left.T @ change @ right.T @ right, change, atol=1e-5)


def test_share_keeps_the_directions_of_changes():
    changes = [torch.outer(torch.eye(6)[n], torch.eye(4)[n]) * (n + 1) for n in range(3)]
    outputs, inputs = _main_directions(changes, 1, 2)
    assert torch.equal(outputs.abs(), torch.eye(6)[:, [2, 1]])  # the largest first
    assert torch.equal(inputs.abs(), torch.eye(4)[:, [2, 1]])


def test_pruned_weights_are_few_multiples_of_a_step():
    method = pruned(lenet(), sparsity=0.8, largest=2, recipe=QUICK, progress=False)
    method.learn_task("a", DATA)
    ones = ones_per_layer(method.backbone.layers, 0.8, "erdos_renyi")
    for weight, count in zip(method._views["a"].weights.values(), ones, strict=True):
        assert torch.count_nonzero(weight) <= count
        assert weight.unique().numel() <= 2 * 2 + 1


def test_bitfit_trains_norms_biases_and_a_head():
    data, recipe = pictures(), RECIPE | {"lr": 0.05, "min_steps": 400}
    for head in ("shared", "own"):
        backbone = il.adapt(ConvNet(), head=head)
        method = made("bitfit", backbone, recipe=recipe).learn_task("a", data)
        names = {"body.0.bias", "body.1.weight", "body.1.bias", "head.weight", "head.bias"}
        assert method._views["a"].weights.keys() == names
        assert method.tasks_["a"].breakdown["weights"] == 4 * (8 * 3 + 3 * (8 + 1))
        assert method.score(data, "a") > 0.8
        coded = made("bitfit", backbone, recipe=recipe, precision="coded")
        # The head is in the code too: 51 numbers of four bits, their steps and models.
        assert coded.learn_task("a", data).tasks_["a"].breakdown["weights"] < 51
        assert coded.score(data, "a") > 0.8
    refused("has no biases and norms to tune", bitfit, lenet())


def test_the_best_mask_is_chosen_by_labels():
    backbone = lenet()
    learner = il.ImpressLearner(backbone, basis_recipe=QUICK, progress=False)
    learner.learn_basis("other", blobs(5)).add_random_masks(299).learn_basis("same", DATA, seed=1)
    method = BestMask(backbone, learner.bank_).learn_task("a", DATA)
    assert method.score(DATA, "a") == learner.score(DATA, "same") > 0.9
    assert method.tasks_["a"].breakdown == {"mask_number": 2, "labels": 2}  # one of 301 masks
    refused("the bank is empty", BestMask, backbone, MaskBank(backbone.layers))
