"""Pushing to and loading from a hub, between processes, against a stand-in on this machine."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from hub_processes import REPO, fetch, push
from hub_stand_in import TOKEN


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_second_process_gets_bit_identical_logits(hub, sender, receiver):
    url = push(sender)
    commits = hub.repositories[REPO].commits
    assert url == f"{hub.url}/{REPO}/commit/{commits[-1].oid}"
    assert [each.message for each in commits[1:]] == ["Push model.impress with ImpressLearn"]
    assert set(commits[-1].files) == {".gitattributes", "README.md", "model.impress"}
    assert commits[-1].files["README.md"].decode().startswith("---\nlibrary_name: impresslearn\n")
    assert receiver.run(fetch()) == sender.run("result = logits(learner)")


def test_the_default_cache_is_the_clients(hub, sender, workers):
    push(sender)
    expected = sender.run("result = logits(learner)")
    assert workers[1].run(f"result = logits(from_hub({REPO!r}))") == expected
    assert any("model.impress" in name for name in files_of(workers[1].home / "hub"))


def test_second_push_is_a_second_commit_and_the_first_stays_reachable(hub, sender, receiver):
    push(sender)
    first = hub.repositories[REPO].commits[-1]
    early = sender.run("result = logits(learner)")
    push(sender, ", commit_message='one more'", 'learner.learn_task("later", blobs(3))')
    assert [each.message for each in hub.repositories[REPO].commits[1:]][1:] == ["one more"]
    pinned = fetch(f", revision={first.oid!r}", "[list(loaded.tasks_), logits(loaded)]")
    assert receiver.run(pinned) == [["first", "second", "new"], early]
    newest = receiver.run(fetch(", revision='main'", "list(loaded.tasks_)"))
    assert newest == ["first", "second", "new", "later"]


def test_what_the_owner_wrote_in_the_card_stays(hub, sender):
    push(sender, ", license='mit'")
    card = hub.repositories[REPO].commits[-1].files["README.md"].decode()
    assert "\nlicense: mit\n" in card
    assert "later" not in card
    hub.put(REPO, "README.md", card.replace("# digits-1", "# Digits\n\nMy notes.").encode())
    push(sender, "", 'learner.learn_task("later", blobs(3))')
    card = hub.repositories[REPO].commits[-1].files["README.md"].decode()
    assert "\nlicense: mit\n" in card
    assert "My notes." in card
    assert "`later`" in card
    hub.put(REPO, "README.md", b"---\ntags: []\n---\nAll mine.\n")
    push(sender, "", "")
    assert hub.repositories[REPO].commits[-1].files["README.md"].endswith(b"\nAll mine.\n")


def test_private_repository_and_token(hub, sender, receiver):
    push(sender, ", private=True")
    created = next(each for each in hub.requests if each.path == "/api/repos/create")
    wish = json.loads(created.body)  # releases of the client put it differently
    assert wish.get("visibility") == "private" or wish.get("private") is True
    asked = [each for each in hub.requests if each.path != "/api/agent-harnesses"]
    assert {each.token for each in asked} == {TOKEN}
    receiver.fails("MissingDataError", f"^no repository {REPO}, or a private one", fetch())
    assert receiver.run(fetch(f", token={TOKEN!r}")) == sender.run("result = logits(learner)")


def test_chosen_tasks_without_weights_under_another_name(hub, sender, receiver):
    push(sender, ", tasks=['first'], weights='seed', filename='small/one.impress'")
    small = hub.repositories[REPO].commits[-1].files["small/one.impress"]
    push(sender, "", "")
    assert len(small) < len(hub.repositories[REPO].commits[-1].files["model.impress"])
    use = "[list(loaded.tasks_), len(loaded.bank_), *logits(loaded, ['first'])]"
    loaded = receiver.run(fetch(", filename='small/one.impress'", use))
    assert loaded == [["first"], 1, *sender.run("result = logits(learner, ['first'])")]


def test_module_of_ones_own(hub, sender, receiver):
    learn = """
backbone = il.adapt(ConvNet(), num_classes=3)
learner = quick_learner(backbone).learn_basis("first", pictures(0))
"""
    push(sender, "", learn)
    assert b"module=module" in hub.repositories[REPO].commits[-1].files["README.md"]
    receiver.fails("StoreError", "pass one of the same structure as module=", fetch())
    use = "logits(loaded, ['first'], pictures(9)[0])"
    expected = sender.run("result = logits(learner, ['first'], pictures(9)[0])")
    assert receiver.run(fetch(", module=ConvNet()", use)) == expected


def test_large_files_are_transferred_apart_and_their_host_gets_no_token(hub, sender, receiver):
    hub.large = (".impress",)
    push(sender, ", private=True")
    assert len(hub.objects) == 1
    loaded = receiver.run(fetch(f", token={TOKEN!r}"))
    assert loaded == sender.run("result = logits(learner)")
    elsewhere = [each for each in hub.requests if each.path.startswith("/objects/")]
    assert [each.method for each in elsewhere] == ["PUT", "GET"]
    assert {(each.host, each.token) for each in elsewhere} == {("localhost", None)}


def test_loading_leaves_the_cache_alone(hub, sender, receiver, tmp_path):
    push(sender)
    receiver.run(fetch())
    before = files_of(tmp_path)
    receiver.run(fetch(use="len(loaded.add_random_masks(2).bank_)"))
    assert files_of(tmp_path) == before


def test_store_that_was_in_use_when_it_was_uploaded(hub, sender, receiver, tmp_path):
    push(sender)
    store = tmp_path / "busy.impress"
    store.write_bytes(hub.repositories[REPO].commits[-1].files["model.impress"])
    connection = sqlite3.connect(store)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    hub.put(REPO, "model.impress", store.read_bytes())
    store.unlink()
    assert receiver.run(fetch()) == sender.run("result = logits(learner)")
    names = files_of(tmp_path)
    assert any(name.endswith("model.impress") for name in names)
    assert not [name for name in names if name.endswith(("-wal", "-shm", "-journal"))]


def test_cache_serves_while_the_hub_does_not(hub, sender, receiver):
    push(sender)
    expected = receiver.run(fetch())
    hub.broken = lambda request: (503, "")
    assert receiver.run(fetch()) == expected


def test_no_other_host_was_contacted(hub, sender, receiver):
    push(sender)
    receiver.run(fetch())
    for worker in (sender, receiver):
        assert set(worker.run("result = sorted(CONTACTED)")) <= {"127.0.0.1", "localhost", "::1"}
        assert worker.run("result = len(CONTACTED)")
    connect = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"
    sender.fails("ConnectionRefusedError", "not this machine", connect)
    sender.run("CONTACTED.discard('192.0.2.1')")
