"""Adapters through PEFT, which is an extra: without it these tests skip."""

import math
from importlib.util import find_spec

import pytest
import torch
from torch import nn

import impresslearn as il
from impresslearn import Recipe
from impresslearn.errors import MissingDependencyError, UnknownTaskError
from impresslearn.methods import Adapter
from impresslearn.streams import torchvision
from toys import QUICK, blobs, lenet, pictures, refused, resnet

needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="PEFT is not installed")
STREAM = il.streams.permuted_digits(tasks=2, seed=0)


@pytest.fixture(scope="module")
def backbone():
    sizes = {"in_features": 64, "widths": (40, 20)}
    return il.create_backbone("lenet_300_100", 10, init="kaiming_normal", **sizes)


def quick(backbone, **settings):
    return Adapter(backbone, **{"recipe": QUICK, "progress": False, **settings})


@needs_peft
def test_norm_statistics_are_coded_with_the_numbers():
    kept = [
        quick(resnet("per_task"), precision=precision).learn_task("a", pictures())
        for precision in ("int4", "coded")
    ]
    sizes = [adapter.tasks_["a"].breakdown["statistics"] for adapter in kept]
    assert sizes[0] > 5 * sizes[1] > 0


@needs_peft
@pytest.mark.parametrize(
    ("kind", "rank", "numbers"),
    [("lora", 3, 3 * (64 + 40 + 40 + 20 + 20 + 10)), ("vera", 30, 3 * 30 + 40 + 20 + 10)],
)
def test_a_task_costs_what_is_trained_for_it(backbone, kind, rank, numbers):
    adapter, task = Adapter(backbone, kind=kind, rank=rank, progress=False), STREAM[0]
    assert adapter.learn_task("a", task.train) is adapter
    accuracy = adapter.score(task.test, "a")
    assert accuracy > 0.8
    assert (adapter.predict(task.test.inputs, "a") == task.test.labels).mean() == accuracy
    assert adapter.tasks_["a"].bytes == 4 * numbers + 2


class Watched(Adapter):
    """Keeps the module that PEFT made of the network for the last task."""

    def _adapted(self):
        self.module = super()._adapted()
        return self.module


@needs_peft
@pytest.mark.parametrize("kind", ["lora", "vera"])
@pytest.mark.parametrize("precision", ["int4", "coded"])
def test_what_is_kept_is_what_predicts(kind, precision):
    backbone, data = lenet(), blobs()
    adapter = Watched(
        backbone, kind=kind, rank=5, precision=precision, recipe=QUICK, progress=False
    ).learn_task("a", data)
    exact = quick(backbone, kind=kind, rank=5).learn_task("a", data)
    assert adapter.tasks_["a"].bytes < exact.tasks_["a"].bytes / 2
    levels = 15 if precision == "int4" else 2 * 7 + 1
    for name, value in adapter.module.named_parameters():
        if value.requires_grad:  # a column of a matrix, or a whole vector, has few values
            columns = value.t() if "lora_B" in name else value  # A is kept transposed
            for column in columns if value.ndim > 1 else [value]:
                assert column.unique().numel() <= levels, name
    for layer in backbone.layers:
        module = adapter.module.get_submodule(layer.name.removesuffix(".weight"))
        made = backbone.weights[layer.name] + module.get_delta_weight("default").detach()
        assert torch.equal(adapter._tuned._views["a"].weights[layer.name], made)


SIZES = {  # numbers of the network 64-40-20-10, and settings with more
    "unilora": ({"config": {"theta_d_length": 70}}, 70, {"config": {"theta_d_length": 140}}),
    "randlora": (
        {"rank": 15},
        15 * (3 + 2 + 1) + 3 * 40 + 2 * 20 + 1 * 10,
        {"rank": 8},
    ),
    "fourierft": (
        {"config": {"n_frequency": 300}},
        300 + 300 + 200,  # the head has no more
        {"config": {"n_frequency": 500}},
    ),
}


@needs_peft
@pytest.mark.parametrize("kind", SIZES)
def test_what_a_seed_redraws_is_not_kept(backbone, kind):
    settings, numbers, more = SIZES[kind]
    task, recipe = STREAM[0], {"recipe": Recipe(lr=0.02, epochs=0, min_steps=300)}
    first = quick(backbone, kind=kind, **settings, **recipe).learn_task("a", task.train)
    assert first.tasks_["a"].breakdown["weights"] == 4 * numbers
    assert first.score(task.test, "a") > 0.5
    larger = quick(backbone, kind=kind, **more).learn_task("a", task.train)
    assert larger.tasks_["a"].bytes > first.tasks_["a"].bytes


@needs_peft
@pytest.mark.parametrize(("topk", "num_vectors"), [(1, 9), (2, 64), (3, 100)])
def test_vb_lora_keeps_vectors_choices_and_their_weights(topk, num_vectors):
    backbone, data = lenet(4), blobs(classes=4)
    config = {"topk": topk, "num_vectors": num_vectors}
    adapter = Watched(backbone, kind="vblora", rank=2, config=config, recipe=QUICK, progress=False)
    assert adapter.config["vector_length"] == 4  # divides 16, 24, 12 and 4
    adapter.learn_task("a", data)
    pieces = 2 * (16 + 24 + 24 + 12 + 12 + 4) // 4
    numbers = num_vectors * 4 + pieces * (topk - 1)
    indices = math.ceil(pieces * topk * math.log2(num_vectors) / 8)
    assert adapter.tasks_["a"].breakdown["weights"] == 4 * numbers + indices
    for name, value in adapter.module.named_parameters():
        if "logits" in name:  # of the vectors that are not chosen nothing is left
            assert ((value > -1e8).sum(-1) == topk).all()
    view = adapter._tuned._views["a"].weights
    for layer in backbone.layers:
        module = adapter.module.get_submodule(layer.name.removesuffix(".weight"))
        made = backbone.weights[layer.name] + module.get_delta_weight("default").detach()
        assert torch.equal(view[layer.name], made)


@needs_peft
@pytest.mark.parametrize("kind", ["unilora", "randlora", "vblora", "fourierft"])
def test_new_kinds_learn_in_few_bytes_and_repeat(kind):
    backbone, data = lenet(init="kaiming_normal", gain=1.0), blobs()
    state, recipe = torch.get_rng_state(), Recipe(lr=0.03, epochs=0, min_steps=200)
    coded, again, other, exact = (
        quick(backbone, kind=kind, seed=seed, precision=precision, recipe=recipe)
        for seed, precision in ((-3, "coded"), (-3, "coded"), (4, "coded"), (-3, "float32"))
    )
    for adapter in (coded, again, other, exact):
        adapter.learn_task("a", data)
    assert coded.score(data, "a") > 0.9
    assert coded.tasks_["a"].bytes < 0.6 * exact.tasks_["a"].bytes
    first, second, third = (
        each._tuned._views["a"].weights["0.weight"] for each in (coded, again, other)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    assert torch.equal(torch.get_rng_state(), state)


@needs_peft
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"kind": "fourierft", "rank": 4}, "FourierFT has no rank, got 4; .* n_frequency"),
        ({"kind": "unilora", "config": {"length": 9}}, "Uni-LoRA is a mapping of theta_d_length"),
        ({"kind": "lora", "config": 3}, "config of LoRA is a mapping of lora_alpha, got 3"),
        ({"kind": "unilora", "config": {"theta_d_length": 0}}, "theta_d_length must be an integer"),
        ({"kind": "vblora", "config": {"topk": 300}}, "at most num_vectors, got 300 of 256"),
        ({"bit_price": 1.0}, 'bit_price is for kind="lora" and precision="coded" alone'),
        ({"kind": "vera", "precision": "coded", "bit_price": 1}, "alone, got kind='vera'"),
        ({"precision": "coded", "bit_price": -1}, "bit_price must be a number of at least 0"),
        ({"precision": "int4", "largest": 15}, 'largest is for precision="coded" alone'),
        ({"kind": "randlora", "config": {"sparse": 1}}, "sparse must be True or False, got 1"),
    ],
)
def test_settings_that_a_kind_does_not_have(settings, line):
    refused(line, quick, lenet(), **settings)


@needs_peft
def test_what_peft_refuses_is_one_line():
    adapter = quick(lenet(), kind="vblora", config={"vector_length": 5})
    refused("PEFT's VB-LoRA: .* 16 must be divisible by .* 5", adapter.learn_task, "a", blobs())


@needs_peft
def test_the_network_is_left_alone_and_the_seed_decides():
    backbone, data = lenet(), blobs()
    before, state = backbone.fingerprint(), torch.get_rng_state()
    adapters = [quick(backbone, seed=seed).learn_task("a", data) for seed in (1, 1, 2)]
    first, again, other = (each._tuned._views["a"].weights["0.weight"] for each in adapters)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)
    assert backbone.fingerprint() == before


@needs_peft
def test_lora_learns_whole_numbers_at_a_price():
    backbone, task = (
        il.create_backbone("lenet_300_100", init="kaiming_normal", in_features=64),
        STREAM[0],
    )
    free, cheap, dear = (
        quick(
            backbone,
            precision="coded",
            bit_price=price,
            recipe=Recipe(lr=0.02, epochs=0, min_steps=300),
        )
        for price in (None, 0.2, 2.0)
    )
    sizes = [each.learn_task("a", task.train).tasks_["a"].bytes for each in (free, cheap, dear)]
    assert sizes[0] > sizes[1] > 1.2 * sizes[2]
    assert cheap.score(task.test, "a") > 0.85
    for layer in backbone.layers:
        change = cheap._tuned._views["a"].weights[layer.name] - backbone.weights[layer.name]
        assert torch.linalg.matrix_rank(change, rtol=1e-4) <= 4
    again = quick(backbone, precision="coded", bit_price=0.2, recipe=cheap.recipe)
    again.learn_task("a", task.train)
    for name, weight in again._tuned._views["a"].weights.items():
        assert torch.equal(weight, cheap._tuned._views["a"].weights[name])
    images = pictures()
    convolved = quick(resnet("per_task"), precision="coded", bit_price=0.1).learn_task("a", images)
    assert convolved.score(images, "a") > 0.5


@needs_peft
def test_convolutions_take_lora():
    backbone, data = resnet("per_task"), pictures()
    adapter = quick(backbone, rank=1, precision="coded").learn_task("a", data)
    assert adapter.score(data, "a") > 0.5


@needs_peft
def test_bad_settings_are_named():
    backbone, data = lenet(), blobs()
    refused("kind must be one of lora, vera, unilora, .* got 'ia3'", quick, backbone, kind="ia3")
    refused("rank must be an integer of at least 1, got 0", quick, backbone, rank=0)
    refused("precision must be one of float32, .* got 'int3'", quick, backbone, precision="int3")
    bare = il.adapt(nn.Linear(16, 3), input_shape=(16,), head="shared")
    refused("PEFT adapts layers inside a module", quick, bare)
    grouped = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(16, 3))
    network = il.adapt(grouped, skip=["2.weight"])
    refused("linear layer or an ungrouped convolution", quick, network)
    for kind, title in (("vera", "VeRA"), ("vblora", "VB-LoRA"), ("fourierft", "FourierFT")):
        line = f'{title} for linear layers only; use kind="lora"'
        refused(line, quick, resnet("batch"), kind=kind)
    adapter = quick(backbone).learn_task("a", data)
    refused("task 'a' was learned already", adapter.learn_task, "a", data)
    refused("'b'", adapter.score, data, "b", error=UnknownTaskError)


def test_without_peft_the_extra_is_named(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(torchvision, "find_spec", lambda name: None)
    monkeypatch.setattr(torchvision.importlib, "import_module", missing)
    with pytest.raises(MissingDependencyError, match=r"pip install 'impresslearn\[peft\]'"):
        quick(lenet())
