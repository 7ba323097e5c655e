"""`BlockFeatures`: what its last layer reads, and what tasks make of it."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import impresslearn as il
from models import Named, padded, seeded
from toys import pictures, refused

IMAGES, LABELS = pictures(0)
POOLED = (nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Swap(nn.Module):
    """Brings the channels of images to the end and back, and the tokens of sentences in front."""

    def forward(self, values: Tensor) -> Tensor:
        return values.transpose(*((1, 3) if values.dim() == 4 else (0, 1)))


def images() -> nn.Module:
    """Channels are second, then last; 8 is their number and the size. The ReLU works in place."""
    first = [nn.Conv2d(3, 8, 1), Swap(), nn.Linear(8, 8)]
    return nn.Sequential(*first, nn.ReLU(inplace=True), Swap(), *POOLED, nn.Linear(8, 3))


def made() -> il.BlockFeatures:
    return il.BlockFeatures(seeded(images), IMAGES[:2], blocks=["0", "2"])


def read(layer: nn.Module, module: nn.Module, *inputs: Tensor, **named: Tensor) -> Tensor:
    """What a layer reads while a module runs."""
    given: list[Tensor] = []
    with torch.no_grad(), layer.register_forward_pre_hook(lambda _, inputs: given.extend(inputs)):
        module(*inputs, **named)
    return given[0]


def scaled(*means: Tensor) -> Tensor:
    features = torch.cat([F.normalize(mean, dim=1) for mean in means], dim=1)
    return features * (features.shape[1] / len(means)) ** 0.5


@torch.no_grad()
def test_means_over_places():
    net, module = seeded(images), made()
    first = net[0](IMAGES)
    second = net[2](first.transpose(1, 3))
    wanted = scaled(first.mean((2, 3)), second.mean((1, 2)), second.relu().mean((1, 2)))
    torch.testing.assert_close(read(module.head, module, IMAGES), wanted)


def test_small_containers_are_blocks_if_there_are_no_others():
    def small(before, after):
        return nn.Sequential(nn.Conv2d(before, after, 1), nn.BatchNorm2d(after), nn.ReLU())

    body = nn.Sequential(small(3, 8), small(8, 6))
    network = nn.Sequential(body, *POOLED, nn.Linear(6, 3))
    assert il.BlockFeatures(network, IMAGES[:2]).head.in_features == 8 + 6


@torch.no_grad()
def test_means_over_tokens_without_padding_and_none_twice():
    (inputs, _), net = padded(), seeded(Named).eval()
    module = il.BlockFeatures(net, inputs, blocks=["attention"])
    hidden, mask = read(net.attention, net, **inputs), inputs["attention_mask"]
    given, _ = net.attention(hidden, hidden, hidden, key_padding_mask=mask == 0)
    means = [row[: mask[place].sum()].mean(0) for place, row in enumerate(given)]
    wanted = scaled(torch.stack(means), read(net.classifier, net, **inputs))
    torch.testing.assert_close(read(module.head, module, **inputs), wanted)
    layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    encoder = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(16, 3))
    assert il.BlockFeatures(encoder, torch.randn(3, 2, 8)).head.in_features == 8 + 8 + 16
    repeated = il.BlockFeatures(images(), IMAGES, blocks=["0", "5"])  # the head reads block 5 too
    assert repeated.head.in_features == 8 + 8


@pytest.mark.parametrize("preset", ["few_labels", "pretrained"])
def test_tasks_survive_stores_threads_and_exports(tmp_path, preset):
    learner = il.ImpressLearner.from_preset(il.adapt(made()), preset, progress=False)
    before = learner.learn_task("a", (IMAGES, LABELS)).logits(IMAGES, "a")
    learner.learn_task("b", pictures(1)).save(tmp_path / "s.impress")
    assert learner.score((IMAGES, LABELS), "a") == learner.score(pictures(1), "b") == 1
    loaded = il.load(tmp_path / "s.impress", module=made())
    for other in (learner, loaded, copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        assert torch.equal(other.logits(IMAGES, "a"), before)
    assert torch.equal(learner.export("a")(IMAGES), before)
    parts = [IMAGES[: 1 + place % 24] for place in range(48)]
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda part: loaded.logits(part, "a"), parts))
    assert all(
        torch.equal(one, loaded.logits(part, "a")) for one, part in zip(both, parts, strict=True)
    )
    plain = {"module": images(), "error": il.StoreError}
    refused("give a BlockFeatures", il.load, tmp_path / "s.impress", **plain)
