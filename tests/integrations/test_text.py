"""Sentences by a tokenizer that the store keeps: in memory, in files, over HTTP and by commands."""

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import impresslearn as il
from impresslearn.errors import InputError
from toys import in_a_new_process, run

tokenizers = pytest.importorskip("tokenizers", reason="the extra 'text' is not installed")

WORDS = {"card": "card pin bank", "room": "room bed hotel", "dish": "soup rice salt"}
FILLERS = ["please", "i", "need", "my", "the", "a", "new", "is", "where"]
NET = """
import torch
from torch import nn

class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(32, 24), nn.Linear(24, 2)

    def forward(self, input_ids, attention_mask):
        kept = attention_mask.unsqueeze(-1).float()
        return self.head((self.words(input_ids) * kept).sum(1) / kept.sum(1))

def make():
    torch.manual_seed(0)
    return Bag()
"""
ASKED = ["please where is my pin", "a new bed", "rice"]


def sentences(*kinds: str, count: int = 40) -> tuple[list[str], list[str]]:
    """Sentences about these kinds of things, and the kind of each."""
    draw, made = np.random.default_rng(0), []
    labels = [kinds[place % len(kinds)] for place in range(count)]
    for label in labels:
        fill = draw.choice(FILLERS, draw.integers(0, 4)).tolist()
        made.append(" ".join([*fill, draw.choice(WORDS[label].split())]))
    return made, labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tokenizer.json of a few words, net.py, and tables train.csv and asked.csv."""
    place = tmp_path_factory.mktemp("text")
    known = ["[PAD]", "[UNK]", *" ".join(WORDS.values()).split(), *FILLERS]
    vocabulary = {word: number for number, word in enumerate(known)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(place / "tokenizer.json"))
    (place / "net.py").write_text(NET)
    texts, labels = sentences(*WORDS)
    pandas.DataFrame({"question": texts, "label": labels}).to_csv(place / "train.csv", index=False)
    pandas.DataFrame({"question": ASKED}).to_csv(place / "asked.csv", index=False)
    return place


def make(folder: Path) -> torch.nn.Module:
    return runpy.run_path(str(folder / "net.py"))["make"]()


def text_learner(folder: Path, **settings: Any) -> il.ImpressLearner:
    how = il.Preprocessing(tokenizer=folder / "tokenizer.json", **settings)
    network = il.adapt(make(folder))
    return il.ImpressLearner.from_preset(network, "few_labels", preprocessing=how, progress=False)


@pytest.fixture(scope="module")
def learned(folder: Path) -> il.ImpressLearner:
    learner = text_learner(folder)
    learner.learn_task("all", sentences(*WORDS, count=200))
    return learner.learn_task("food", sentences("dish", "card", count=200))


def test_every_form_of_sentences_becomes_the_same_tokens(learned: il.ImpressLearner) -> None:
    tokens = learned.prepare(ASKED)
    assert isinstance(tokens, il.Inputs)
    assert list(tokens.named) == ["input_ids", "attention_mask"]
    assert tokens.named["attention_mask"].sum(1).tolist() == [5, 3, 1]
    array = np.array(ASKED)
    frame = pandas.DataFrame({"question": ASKED})
    forms = (tuple(ASKED), array, array.astype(object), frame, frame.question, tokens)
    for form in (*forms, dict(tokens.named)):
        same = learned.prepare(form)
        assert all(torch.equal(a, b) for a, b in zip(tokens.tensors, same.tensors, strict=True))


def test_sentences_are_learned_and_recognised(learned: il.ImpressLearner) -> None:
    assert learned.predict(ASKED, "all").tolist() == ["card", "room", "dish"]
    assert learned.score(sentences(*WORDS, count=30), "all") == 1
    assert learned.infer_task(sentences("room", "dish", "card")[0]).best == "all"
    assert learned.predict(ASKED, ["all", "all", "food"]).tolist() == ["card", "room", "dish"]
    texts, labels = sentences(*WORDS)
    features = learned.features(texts)
    assert learned.predict(features[:5], "all").tolist() == labels[:5]
    exported = learned.export("all")
    tokens = learned.prepare(ASKED)
    assert torch.equal(exported(**tokens.named), learned.logits(ASKED, "all"))


def test_a_longer_sentence_is_cut(folder: Path) -> None:
    learner = text_learner(folder, max_length=2)
    assert learner.prepare(["my card pin", "card"]).named["input_ids"].shape == (2, 2)


def test_a_store_keeps_the_tokenizer_once(
    learned: il.ImpressLearner, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s.impress"
    learned.save(path)
    assert path.read_bytes().count(b"unk_token") == 1
    served = il.load(path, module=make(folder))
    assert served.preprocessing == learned.preprocessing
    assert torch.equal(served.logits(ASKED, "all"), learned.logits(ASKED, "all"))
    code = (
        "import runpy, sys, impresslearn as il; made = runpy.run_path(sys.argv[1])['make']();"
        "print(*il.load(sys.argv[2], module=made).predict(sys.argv[3:], 'all'))"
    )
    assert (
        in_a_new_process("-c", code, str(folder / "net.py"), str(path), *ASKED) == "card room dish"
    )
    shown = run("info", path)
    assert "SHA-256" in shown
    assert "unk_token" not in shown
    text = (folder / "tokenizer.json").read_text().replace('"soup"', '"stew"')
    with pytest.raises(InputError, match="SHA-256 .* not .*SHA-256") as caught:
        il.load(path, module=make(folder), preprocessing=il.Preprocessing(tokenizer=text))
    assert len(str(caught.value)) < 700


def test_text_over_http(learned: il.ImpressLearner) -> None:
    testing = pytest.importorskip("fastapi.testclient")
    from impresslearn.serve import create_app

    with testing.TestClient(create_app(learned)) as client:
        answer = client.post("/predict", json={"inputs": ASKED, "task": "all", "logits": True})
        assert answer.json()["labels"] == ["card", "room", "dish"]
        logits = torch.tensor(answer.json()["logits"], dtype=torch.float64)
        assert torch.equal(logits, learned.logits(ASKED, "all").double())
        texts = sentences("room", "dish", "card")[0]
        assert client.post("/infer", json={"inputs": texts}).json()["best"] == "all"
        assert "SHA-256" in client.get("/ready").json()["preprocessing"]["tokenizer"]
        for wrong in ("one text", ["a", None], [], ["a"] * 1001):
            refused = client.post("/predict", json={"inputs": wrong, "task": "all"})
            assert (refused.status_code, "texts" in refused.json()["error"]) == (422, wrong != [])


def test_text_by_commands(folder: Path, tmp_path: Path) -> None:
    store, module = tmp_path / "s.impress", ("--module", f"{folder / 'net.py'}:make")
    train = f"all={folder / 'train.csv'}"
    tokenizer = f"tokenizer={folder / 'tokenizer.json'}"
    run("new", store, train, "--preset", "few_labels", "--prepare", tokenizer, *module)
    run("learn", store, train, *module)
    assert "already learned" in run("learn", store, train, *module)
    told = run("predict", store, folder / "asked.csv", "--task", "all", "--json", *module)
    assert [row["label"] for row in json.loads(told)["rows"]] == ["card", "room", "dish"]
    assert "1" in run("evaluate", store, train, *module)
    assert run("predict", store, folder / "train.csv", *module).count("\n") == 40
