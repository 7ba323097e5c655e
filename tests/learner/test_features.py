"""Features computed once: tasks learned and predicted from them are those of the inputs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from impresslearn import Backbone, ImpressLearner, Prepared, Preprocessing, adapt, load
from toys import ConvNet, blobs, lenet, pictures, quick_learner, refused

WORDS, LENGTH = 30, 6


class Sentences(nn.Module):
    """The mean embedding of the words that the mask keeps, a hidden layer and a head."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.words, self.hidden, self.head = (
            nn.Embedding(WORDS, 12),
            nn.Linear(12, 20),
            nn.Linear(20, 3),
        )
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=generator)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        kept = attention_mask.unsqueeze(-1).float()
        mean = (self.words(input_ids) * kept).sum(1) / kept.sum(1)
        return self.head(self.hidden(mean).relu())


def sentences(seed: int, count: int = 60) -> tuple[dict[str, Tensor], np.ndarray]:
    """Ids and masks of sentences; each of three intents has words of its own."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    ids = torch.randint(12, (count, LENGTH), generator=generator) + 8 * labels[:, None]
    mask = (torch.arange(LENGTH) < 3 + labels[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask}, np.array(["pay", "book", "ask"])[labels]


def learner_of(backbone: Backbone, **settings: Any) -> ImpressLearner:
    return ImpressLearner.from_preset(backbone, "few_labels", progress=False, **settings)


def convolutional() -> ConvNet:
    """A network whose running statistics are no longer new."""
    network = ConvNet()
    network(pictures(5)[0])
    return network.eval()


def networks() -> dict[str, tuple[ImpressLearner, ImpressLearner, Any]]:
    """Two equal learners each, and data: of sentences, pictures, and rows under masks."""
    made: dict[str, Any] = {}
    for name, module, data in (
        ("sentences", Sentences(), sentences(0)),
        ("pictures", convolutional(), pictures(count=60)),
    ):
        made[name] = (learner_of(adapt(module)), learner_of(adapt(module)), data)
    masked = [learner_of(lenet(3, head="own")).add_random_masks(3) for _ in range(2)]
    return made | {"masks": (*masked, blobs())}


@pytest.mark.parametrize("kind", ["sentences", "pictures", "masks"])
def test_tasks_are_those_of_the_inputs(tmp_path: Path, kind: str) -> None:
    raw, kept, (inputs, labels) = networks()[kind]
    features = kept.features(inputs)
    again = pickle.loads(pickle.dumps(features))
    for name, places in {"all": slice(None), "some": slice(5, 45)}.items():
        some = (
            {key: rows[places] for key, rows in inputs.items()}
            if kind == "sentences"
            else inputs[places]
        )
        raw.learn_task(name, (some, labels[places]))
        kept.learn_task(name, ((features if name == "all" else again)[places], labels[places]))
        one, other = (learner.tasks_[name] for learner in (raw, kept))
        assert other.breakdown == one.breakdown
        assert one.history["recipe"] == other.history["recipe"]
        logits = raw.logits(inputs, name)
        torch.testing.assert_close(kept.logits(features, name), logits, atol=1e-5, rtol=1e-5)
        assert torch.equal(kept.logits(inputs, name), logits)  # the same numbers were kept
        assert kept._store.tasks.learned(name).profile == raw._store.tasks.learned(name).profile
        assert kept.score((features, labels), name) == raw.score((inputs, labels), name) > 0.8
    kept.save(path := tmp_path / "a.impress")
    served = load(path, **({} if kind == "masks" else {"module": kept.backbone.module}))
    assert (served.predict(inputs, "some") == kept.predict(features, "some")).all()
    assert kept.infer_task(features).posterior == pytest.approx(raw.infer_task(inputs).posterior)


def test_the_network_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, (inputs, labels) = learner_of(adapt(Sentences())), sentences(0)
    features = learner.features(inputs)
    learner.learn_task("first", (features, labels))  # tries heads of three outputs
    monkeypatch.setattr(Backbone, "forward", lambda *_: pytest.fail("the network runs again"))
    learner.learn_task("second", (features[:40], labels[:40]))
    learner.update_task("first", (features[:50], labels[:50]))
    assert learner.score((features, labels), "second") > 0.8
    assert learner.infer_task(features[:8]).best in ("first", "second")
    assert learner.predict(features[:4], ["first", "second"] * 2).shape == (4,)


def test_heads_that_tasks_replace_make_no_other_network() -> None:
    (inputs, labels), module = sentences(0), Sentences()
    features = learner_of(adapt(module)).features(inputs)
    nn.init.ones_(module.head.weight)
    assert learner_of(adapt(module)).learn_task("task", (features, labels)).tasks_["task"].bytes


def test_values_that_were_saved_are_checked_on_some_rows() -> None:
    learner, (inputs, labels) = learner_of(adapt(Sentences())), sentences(0)
    values = learner.features(inputs).values.numpy()
    given = learner.features(inputs, values=values.astype(np.float16))
    learner.learn_task("task", (given, labels))
    assert learner.score((inputs, labels), "task") > 0.9
    refused("another network, or in another order", learner.features, inputs, values[::-1].copy())
    refused(r"\(60, 20\), got \(60, 19\)", learner.features, inputs, values[:, 1:])


def test_the_form_of_raw_inputs_is_kept() -> None:
    images, labels = pictures(count=60)
    pixels = (60 * images + 128).clamp(0, 255).byte()
    preprocessing = Preprocessing(mean=0.5, std=0.25)
    learner = learner_of(adapt(convolutional()), preprocessing=preprocessing)
    features = learner.features(pixels)
    ready = learner.features(Prepared(learner.prepare(pixels)))
    assert torch.equal(ready.values, features.values)
    plain = learner_of(adapt(convolutional()))
    plain.learn_task("task", (plain.features(pixels), labels))
    refused("pixels", plain.predict, 100 * images, "task")


def test_features_of_something_else_are_refused() -> None:
    inputs, labels = blobs()
    learner = learner_of(lenet(3, head="own")).add_random_masks(2)
    features = learner.features(inputs)
    other = learner_of(lenet(3, head="own", seed=1)).add_random_masks(2)
    for verb in (other.learn_task, learner_of(lenet(3, head="own", seed=2)).learn_basis):
        refused("of another network", verb, "task", (features, labels))
    refused("of another network", other.predict, features, "task")
    masked = learner_of(lenet(3, head="own")).add_random_masks(2, seed=7)
    refused("other masks", masked.learn_task, "task", (features, labels))
    tuned = quick_learner(lenet(3, head="own"), bank=learner.bank_)
    refused("give the inputs", tuned.learn_task, "task", (features, labels))
    tuned.learn_task("task", (inputs, labels))
    refused("weights of its own", tuned.predict, features, "task")
    learner.add_random_masks(1)
    refused("compute them again", learner.learn_task, "task", (features, labels))
    by_batch = learner_of(adapt(ConvNet(), norm="batch"))
    refused("depend on the batch", by_batch.features, pictures()[0])
