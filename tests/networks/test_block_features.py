"""`BlockFeatures`: what its last layer reads, and what tasks make of it."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import impresslearn as il
from models import Named, Sentences, padded, seeded, sentences
from toys import mlp, pictures, refused

IMAGES, LABELS = pictures(0)


class Images(nn.Module):
    """Blocks over (n, 8, 8, 8) with channels second, or last; each output is changed in place."""

    def __init__(self, kind: type = nn.Conv2d) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 8, 1), kind is nn.Linear
        layers = [nn.Linear(8, 8) if self.last else nn.Conv2d(8, 8, 1) for _ in range(4)]
        self.blocks = nn.ModuleList([nn.Sequential(*layers[:2]), nn.Sequential(*layers[2:])])
        self.head = nn.Linear(8, 3)

    def forward(self, images: Tensor) -> Tensor:
        values = self.stem(images).movedim(1, 3) if self.last else self.stem(images)
        for block in self.blocks:
            values = block(values).relu_()
        return self.head(values.mean((1, 2) if self.last else (2, 3)))


class Swap(nn.Module):
    """Tokens (n, length, f) as (length, n, f), which `nn.TransformerEncoder` takes by default."""

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens.transpose(0, 1)


def made(kind: type = nn.Conv2d) -> il.BlockFeatures:
    net = seeded(lambda: Images(kind))
    return il.BlockFeatures(net, IMAGES[:2], blocks=["blocks.0", "blocks.1"])


def read(layer: nn.Module, module: nn.Module, *inputs: Tensor, **named: Tensor) -> Tensor:
    """What a layer reads while a module runs."""
    given: list[Tensor] = []
    with torch.no_grad(), layer.register_forward_pre_hook(lambda _, inputs: given.extend(inputs)):
        module(*inputs, **named)
    return given[0]


def scaled(*means: Tensor) -> Tensor:
    features = torch.cat([F.normalize(mean, dim=1) for mean in means], dim=1)
    return features * (features.shape[1] / len(means)) ** 0.5


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.Linear])
def test_means_of_images_with_channels_second_or_last(kind):
    net, places = seeded(lambda: Images(kind)), (1, 2) if kind is nn.Linear else (2, 3)
    with torch.no_grad():
        first = net.blocks[0](read(net.blocks[0], net, IMAGES))
        second = net.blocks[1](first.relu())
    wanted = scaled(first.mean(places), second.mean(places), second.relu().mean(places))
    module = made(kind)
    torch.testing.assert_close(read(module.head, module, IMAGES), wanted)


def test_padding_does_not_count_and_a_mean_is_read_once():
    (inputs, _), net = padded(), seeded(Named).eval()
    module = il.BlockFeatures(net, inputs, blocks=["attention"])
    with torch.no_grad():
        hidden = read(net.attention, net, **inputs)
        mask = inputs["attention_mask"]
        tokens, _ = net.attention(hidden, hidden, hidden, key_padding_mask=mask == 0)
    means = [row[: mask[place].sum()].mean(0) for place, row in enumerate(tokens)]
    wanted = scaled(torch.stack(means), read(net.classifier, net, **inputs))
    torch.testing.assert_close(read(module.head, module, **inputs), wanted)
    module = il.BlockFeatures(seeded(Sentences), sentences()[0], blocks=["block"])
    assert module.head.in_features == 16  # its last layer reads the mean of the block


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
    sizes = [1 + place % len(IMAGES) for place in range(40)]
    alone = [loaded.logits(IMAGES[:size], "a") for size in sizes]
    with ThreadPoolExecutor(2) as pool:
        both = pool.map(lambda size: loaded.logits(IMAGES[:size], "a"), sizes)
    assert all(map(torch.equal, alone, both))
    with pytest.raises(il.StoreError, match="give a BlockFeatures"):
        il.load(tmp_path / "s.impress", module=Images())


def test_wrong_uses_are_one_line():
    net, single, twice = Images(), IMAGES[:1], IMAGES[:1].expand(2, -1, -1, -1)
    rows = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8), 1)
    swapped = nn.Sequential(nn.Unflatten(1, (2, 8)), Swap(), rows, Swap(), nn.Flatten(), mlp())
    for inputs in (single, twice):
        refused("of which the first two differ", il.BlockFeatures, net, inputs)
    refused("no blocks of several layers", il.BlockFeatures, net, IMAGES)
    refused("is on meta", il.BlockFeatures, Images().to("meta"), IMAGES)
    refused(r"a batch \(3, ...\), got \(2, 3, 8\)", il.BlockFeatures, swapped, torch.randn(2, 16))
    for match, blocks in {
        "no module 'block'; did you mean 'blocks'": ["block"],
        "must be a list of names": "stem",
        "holds the last layer": ["head"],
        "'blocks' is not called": ["stem", "blocks"],
    }.items():
        refused(match, il.BlockFeatures, net, IMAGES, blocks=blocks)
