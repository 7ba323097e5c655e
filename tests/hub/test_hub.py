"""Pushing to and loading from a hub, against a stand-in in memory."""

from __future__ import annotations

import sqlite3

import pytest
import torch
from hub_stand_in import REPO, TOKEN

import impresslearn as il
from impresslearn import StoreError, from_hub, push_to_hub
from toys import ConvNet, blobs, pictures, quick_learner


def logits(learner, names=("first", "new")):
    return [learner.logits(blobs(9)[0], name) for name in names]


def same(one, other):
    return all(map(torch.equal, one, other))


def files_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_every_push_is_a_commit_that_stays_reachable(hub, learner, cache):
    url = push_to_hub(learner, REPO, token=TOKEN)
    assert url == f"https://huggingface.co/{REPO}/commit/{2:040x}"
    assert set(hub.files) == {".gitattributes", "README.md", "model.impress"}
    early, learner = logits(learner), learner.learn_task("later", blobs(3))
    push_to_hub(learner, REPO, token=TOKEN, commit_message="one more")
    messages = [message for message, _ in hub.commits]
    assert messages[1:] == ["Push model.impress with ImpressLearn", "one more"]
    pinned = from_hub(REPO, revision=f"{2:040x}")
    assert list(pinned.tasks_) == ["first", "second", "new"]
    assert same(logits(pinned), early)
    before = files_of(cache)  # which is the client's, and from which nothing is taken away
    assert any("model.impress" in name for name in before)
    pinned.add_random_masks(2)
    hub.broken = lambda request: (503, "")
    assert same(logits(from_hub(REPO, revision=f"{2:040x}")), early)
    assert files_of(cache) == before


def test_what_the_owner_wrote_in_the_card_stays(hub, learner):
    push_to_hub(learner, REPO, token=TOKEN)
    assert "license" not in hub.files["README.md"].decode()
    push_to_hub(learner, REPO, token=TOKEN, license="mit")
    card = hub.files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: impresslearn\n")
    assert "later" not in card
    hub.commit("", {"README.md": card.replace("# digits-1", "# Digits\n\nMy notes.").encode()})
    learner.learn_task("later", blobs(3))
    push_to_hub(learner, REPO, token=TOKEN)
    card = hub.files["README.md"].decode()
    for kept in ("\nlicense: mit\n", "My notes.", "`later`"):
        assert kept in card
    hub.commit("", {"README.md": b"---\ntags: []\n---\nAll mine.\r\n"})
    push_to_hub(learner, REPO, token=TOKEN)
    assert hub.files["README.md"].endswith(b"\nAll mine.\r\n")


def test_private_repository_and_token(hub, learner):
    push_to_hub(learner, REPO, token=TOKEN, private=True)
    assert hub.private
    assert {each.headers.get("Authorization") for each in hub.requests} == {f"Bearer {TOKEN}"}
    assert {each.url.host for each in hub.requests} == {"huggingface.co"}
    with pytest.raises(il.MissingDataError, match=f"^no repository {REPO}, or a private one"):
        from_hub(REPO)
    assert same(logits(from_hub(REPO, token=TOKEN)), logits(learner))


def test_chosen_tasks_without_weights_under_another_name(hub, learner):
    name = "small/one.impress"
    push_to_hub(learner, REPO, token=TOKEN, tasks=["first"], weights="seed", filename=name)
    loaded = from_hub(REPO, filename=name)
    assert (list(loaded.tasks_), len(loaded.bank_)) == (["first"], 1)
    assert same(logits(loaded, ["first"]), logits(learner, ["first"]))


def test_custom_module(hub):
    learner = quick_learner(il.adapt(ConvNet(), num_classes=3)).learn_basis("first", pictures(0))
    push_to_hub(learner, REPO, token=TOKEN)
    assert b"module=module" in hub.files["README.md"]
    with pytest.raises(StoreError, match="pass one of the same structure as module="):
        from_hub(REPO)
    loaded, images = from_hub(REPO, module=ConvNet()), pictures(9)[0]
    assert torch.equal(loaded.logits(images, "first"), learner.logits(images, "first"))


def test_store_that_was_in_use_when_it_was_uploaded(hub, learner, cache, tmp_path):
    store = tmp_path / "busy.impress"
    learner.save(store)
    connection = sqlite3.connect(store)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    hub.commit("", {"model.impress": store.read_bytes()})
    assert same(logits(from_hub(REPO)), logits(learner))
    assert not [name for name in files_of(cache) if name.endswith(("-wal", "-shm", "-journal"))]
