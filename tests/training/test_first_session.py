"""`adapt_to`: a network trained once on data like the tasks to come, then frozen again."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import impresslearn as il
from toys import few_labels, refused

RECIPE = il.Recipe(optimizer="adamw", lr=0.003, epochs=8, batch_size=64)


def digits(labels):
    images, classes = load_digits(return_X_y=True)
    chosen = np.isin(classes, labels)
    return torch.tensor(images[chosen] / 16, dtype=torch.float32), classes[chosen]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, 16, 3, 2),
            nn.ReLU(),
            nn.Conv2d(16, 4, 3),
            nn.BatchNorm2d(4),
        )
        self.head = nn.Linear(4, 10)

    def forward(self, images):
        return self.head(self.body(images).flatten(1))


@pytest.fixture(scope="module")
def networks():
    torch.manual_seed(0)
    net = Net()
    net(digits(range(6))[0])  # gathers norm statistics
    before = il.adapt(net, input_shape=(64,))
    fingerprint = before.fingerprint()
    after = il.adapt_to(before, digits(range(6)), recipe=RECIPE, progress=False)
    assert before.fingerprint() == fingerprint != after.fingerprint()
    return before, after


def test_tasks_of_other_classes_are_learned_better_in_as_few_bytes(networks):
    inputs, labels = digits(range(6, 10))
    scores = []
    for backbone in networks:
        learner = few_labels(backbone, max_bytes=150).learn_task("a", (inputs[:40], labels[:40]))
        assert learner.tasks_["a"].bytes <= 150
        scores.append(learner.score((inputs[40:], labels[40:]), "a"))
    assert scores[1] > scores[0] + 0.02


def test_a_store_keeps_the_adapted_network(networks, tmp_path):
    inputs, labels = digits(range(6, 10))
    learner = few_labels(networks[1], max_bytes=150).learn_task("a", (inputs[:40], labels[:40]))
    learner.save(tmp_path / "s.impress")
    loaded = il.load(tmp_path / "s.impress", module=Net())
    assert loaded.logits(inputs, "a").equal(learner.logits(inputs, "a"))
    drawn = il.create_backbone("lenet_300_100", widths=[20, 10], in_features=64, head="own")
    drawn = il.adapt_to(drawn, digits(range(6)), recipe={"epochs": 1}, progress=False)
    learner = few_labels(drawn, max_bytes=150).learn_task("a", (inputs[:40], labels[:40]))
    line = "weights='seed' needs a network of create_backbone"
    refused(line, learner.save, tmp_path / "t.impress", weights="seed")
    learner.save(tmp_path / "t.impress")
    assert il.load(tmp_path / "t.impress").logits(inputs, "a").equal(learner.logits(inputs, "a"))
