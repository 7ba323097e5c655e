"""Pushing to and loading from a hub, against a stand-in in memory."""

from __future__ import annotations

import os
import pickle
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hub_stand_in import REPO, TOKEN

import impresslearn as il
from impresslearn import StoreError, from_hub, push_to_hub
from toys import ConvNet, blobs, pictures, quick_learner

SECOND_PROCESS = """
import pickle, sys
from hub_stand_in import REPO, Hub
from impresslearn import from_hub
from toys import blobs

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise ConnectionRefusedError(f"{event} {arguments}")

sys.addaudithook(refuse)
with Hub(pickle.load(open(sys.argv[1], "rb"))).connected():
    loaded = from_hub(REPO, cache_dir=sys.argv[2])
print([loaded.logits(blobs(9)[0], name).numpy().tobytes().hex() for name in ("first", "new")])
"""


def logits(learner, names=("first", "new"), inputs=None):
    return [learner.logits(blobs(9)[0] if inputs is None else inputs, name) for name in names]


def same(one, other):
    return all(map(torch.equal, one, other))


def files_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_second_process_gets_bit_identical_logits(hub, learner, tmp_path):
    url = push_to_hub(learner, REPO, token=TOKEN)
    commits = hub.repositories[REPO].commits
    assert url == f"https://huggingface.co/{REPO}/commit/{len(commits):040x}"
    assert [message for message, _ in commits[1:]] == ["Push model.impress with ImpressLearn"]
    assert set(hub.files) == {".gitattributes", "README.md", "model.impress"}
    assert hub.files["README.md"].decode().startswith("---\nlibrary_name: impresslearn\n")
    (tmp_path / "hub").write_bytes(pickle.dumps(hub.repositories))
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    told = subprocess.run(
        [sys.executable, "-c", SECOND_PROCESS, tmp_path / "hub", tmp_path / "other"],
        env=os.environ | {"PYTHONPATH": path, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        capture_output=True,
        text=True,
    )
    expected = [values.numpy().tobytes().hex() for values in logits(learner)]
    assert told.stdout.strip() == str(expected), told.stderr


def test_the_cache_is_the_clients_and_loading_leaves_it_alone(hub, learner, cache):
    push_to_hub(learner, REPO, token=TOKEN)
    assert same(logits(from_hub(REPO)), logits(learner))
    before = files_of(cache)
    assert any("model.impress" in name for name in before)
    loaded = from_hub(REPO)
    assert len(loaded.add_random_masks(2).bank_) == 4
    assert files_of(cache) == before
    hub.broken = lambda request: (503, "")
    assert same(logits(from_hub(REPO)), logits(learner))


def test_second_push_is_a_second_commit_and_the_first_stays_reachable(hub, learner):
    push_to_hub(learner, REPO, token=TOKEN)
    early = logits(learner)
    learner.learn_task("later", blobs(3))
    push_to_hub(learner, REPO, token=TOKEN, commit_message="one more")
    assert [message for message, _ in hub.repositories[REPO].commits[2:]] == ["one more"]
    pinned = from_hub(REPO, revision=f"{2:040x}")
    assert list(pinned.tasks_) == ["first", "second", "new"]
    assert same(logits(pinned), early)
    assert list(from_hub(REPO, revision="main").tasks_) == ["first", "second", "new", "later"]


def test_what_the_owner_wrote_in_the_card_stays(hub, learner):
    push_to_hub(learner, REPO, token=TOKEN, license="mit")
    card = hub.files["README.md"].decode()
    assert "\nlicense: mit\n" in card
    assert "later" not in card
    hub.put("README.md", card.replace("# digits-1", "# Digits\n\nMy notes.").encode())
    learner.learn_task("later", blobs(3))
    push_to_hub(learner, REPO, token=TOKEN)
    card = hub.files["README.md"].decode()
    for kept in ("\nlicense: mit\n", "My notes.", "`later`"):
        assert kept in card
    hub.put("README.md", b"---\ntags: []\n---\nAll mine.\r\n")
    push_to_hub(learner, REPO, token=TOKEN)
    assert hub.files["README.md"].endswith(b"\nAll mine.\r\n")


def test_private_repository_and_token(hub, learner):
    push_to_hub(learner, REPO, token=TOKEN, private=True)
    assert hub.repositories[REPO].private
    assert {each.headers.get("Authorization") for each in hub.requests} == {f"Bearer {TOKEN}"}
    assert {each.url.host for each in hub.requests} == {"huggingface.co"}
    with pytest.raises(il.MissingDataError, match=f"^no repository {REPO}, or a private one"):
        from_hub(REPO)
    assert same(logits(from_hub(REPO, token=TOKEN)), logits(learner))


def test_chosen_tasks_without_weights_under_another_name(hub, learner):
    name = "small/one.impress"
    push_to_hub(learner, REPO, token=TOKEN, tasks=["first"], weights="seed", filename=name)
    push_to_hub(learner, REPO, token=TOKEN)
    assert len(hub.files[name]) < len(hub.files["model.impress"])
    loaded = from_hub(REPO, filename=name)
    assert (list(loaded.tasks_), len(loaded.bank_)) == (["first"], 1)
    assert same(logits(loaded, ["first"]), logits(learner, ["first"]))


def test_module_of_ones_own(hub):
    learner = quick_learner(il.adapt(ConvNet(), num_classes=3)).learn_basis("first", pictures(0))
    push_to_hub(learner, REPO, token=TOKEN)
    assert b"module=module" in hub.files["README.md"]
    with pytest.raises(StoreError, match="pass one of the same structure as module="):
        from_hub(REPO)
    images = pictures(9)[0]
    loaded = from_hub(REPO, module=ConvNet())
    assert same(logits(loaded, ["first"], images), logits(learner, ["first"], images))


def test_store_that_was_in_use_when_it_was_uploaded(hub, learner, cache, tmp_path):
    push_to_hub(learner, REPO, token=TOKEN)
    store = tmp_path / "busy.impress"
    store.write_bytes(hub.files["model.impress"])
    connection = sqlite3.connect(store)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    hub.put("model.impress", store.read_bytes())
    assert same(logits(from_hub(REPO)), logits(learner))
    assert not [name for name in files_of(cache) if name.endswith(("-wal", "-shm", "-journal"))]
