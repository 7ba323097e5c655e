"""Text in the layout of CLINC150: a task for each domain, and sentences of no intent."""

import json

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn.streams import clinc150, clinc150_sentences, create_stream
from toys import refused

DOMAINS = {"travel": ["flight", "hotel", "visa"], "banking": ["transfer", "balance"]}
POLITE = ("please {}", "{} now", "i want a {}", "what about my {}", "{} for tomorrow please")
COUNTS = {"train": 5, "val": 2, "test": 3}


def pairs(split):
    if split.startswith("oos"):
        return [["how tall is the moon", "oos"], ["tomorrow please", "oos"]]
    kept = POLITE[: COUNTS[split]]
    return [[p.format(name), name] for p in kept for names in DOMAINS.values() for name in names]


@pytest.fixture
def root(tmp_path):
    splits = ("oos_val", "val", "train", "oos_test", "test", "oos_train")
    (tmp_path / "data_full.json").write_text(json.dumps({split: pairs(split) for split in splits}))
    (tmp_path / "domains.json").write_text(json.dumps(DOMAINS))
    return tmp_path


def test_a_task_for_each_domain_with_its_own_intents(root):
    stream = create_stream("clinc150", root=root, width=6)
    assert (stream.name, stream.names) == ("clinc150", ("travel", "banking"))
    assert stream["travel"].classes == ("flight", "hotel", "visa")
    task = stream["banking"]
    assert [len(part) for part in (task.train, task.validation, task.test)] == [10, 4, 6]
    assert task.test.labels.tolist() == ["transfer", "balance"] * 3
    encoder = il.TextEncoder(6).fit(clinc150_sentences(root))
    sentences = ["please transfer", "please balance", "transfer now", "balance now"]
    assert torch.equal(task.validation.inputs, encoder.transform(sentences))
    other = clinc150(root, encoder=il.TextEncoder(4).fit(sentences * 3))
    assert other[0].test.inputs.shape == (9, 4)


def test_sentences_out_of_scope_are_inputs_like_others(root):
    assert clinc150_sentences(root, "oos_test") == ["how tall is the moon", "tomorrow please"]
    assert len(clinc150_sentences(root, "test")) == 15
    refused("split must be one of train, val, .*'oos'", clinc150_sentences, root, "oos")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("data_full.json", None, "no .*data_full.json: expected the folder of CLINC150 with data_"),
        ("domains.json", None, "no .*domains.json: expected the folder of CLINC150"),
        ("data_full.json", '{"train": [', "data_full.json is no JSON file"),
        ("data_full.json", '{"train": [["a", "b"]]}', "lists of .*, which its val is not"),
        ("data_full.json", '{"train": ["ab"]}', "lists of .*, which its train is not"),
        ("data_full.json", "[]", "must map train, val, test"),
        ("domains.json", "{}", "must map domains to lists of intents"),
        ("domains.json", '{"a": "flight"}', "must map domains to lists of intents"),
        ("domains.json", '{"a": ["flight"]}', "'balance' of .*data_full.json is not in domains"),
        (
            "domains.json",
            json.dumps(DOMAINS | {"home": ["play"]}),
            "'play' of .*domains.json is not in data_full",
        ),
    ],
)
def test_a_missing_or_damaged_folder_is_one_line(root, file, content, message):
    if content is None:
        (root / file).unlink()
    else:
        (root / file).write_text(content)
    error = il.InputError if content else il.MissingDataError
    refused(message, clinc150, root, width=6, error=error)


def test_splits_without_a_domain_and_other_encoders_are_refused(root):
    content = json.loads((root / "data_full.json").read_text())
    content["test"] = [pair for pair in content["test"] if pair[1] in DOMAINS["travel"]]
    (root / "data_full.json").write_text(json.dumps(content))
    refused("no test sentences of the domain 'banking'", clinc150, root, width=6)
    refused("encoder must be a TextEncoder, got str", clinc150, root, encoder="own.npz")


@pytest.mark.nightly
def test_classifiers_on_the_real_data(clinc150_root):
    """Logistic regression, and a coded head at a thirtieth of its bytes."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    recipe = il.Recipe(lr=0.03, epochs=0, min_steps=300, batch_size=256, label_smoothing=0.1)
    network = il.create_backbone("linear", in_features=768, head="own")
    settings = {"precision": "coded", "bit_price": 0.02, "task_recipe": recipe, "progress": False}
    learner = il.ImpressLearner(network, **settings)
    encoder = il.TextEncoder().fit(clinc150_sentences(clinc150_root))
    outside = encoder.transform(clinc150_sentences(clinc150_root, "oos_test"))
    stream = clinc150(clinc150_root, encoder=encoder)
    assert [len(task.classes) for task in stream] == [15] * 10
    rows = []
    for task in stream:
        test = task.test
        shown = torch.cat([test.inputs, outside])
        inside = np.arange(len(shown)) < len(test)
        learner.learn_task(task.name, task.train)
        probabilities = learner.logits(shown, task.name).softmax(dim=1)
        fitted = LogisticRegression(max_iter=300).fit(task.train.inputs, task.train.labels)
        rows.append(
            (
                fitted.score(test.inputs, test.labels),
                roc_auc_score(inside, fitted.predict_proba(shown).max(1)),
                learner.score(test, task.name),
                roc_auc_score(inside, probabilities.amax(dim=1)),
                learner.tasks_[task.name].bytes,
            )
        )
    assert len(outside) == 1000
    accuracy, area, own_accuracy, own_area, size = np.mean(rows, axis=0)
    assert accuracy > 0.935  # 0.9416
    assert area > 0.96  # 0.971
    assert own_accuracy > 0.93  # 0.9398
    assert own_area > 0.94  # 0.958
    assert size < 2000  # 1406
