"""What goes wrong between here and a hub ends in one line that says what to do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hub_processes import ANY, REPO, fetch, push
from hub_stand_in import TOKEN

import impresslearn as il
from impresslearn.hub import from_hub


def test_damaged_download_is_refused_and_can_be_fetched_anew(hub, sender, receiver):
    push(sender)
    hub.altered = lambda content: content.replace(b"first", b"fIrst")
    line = receiver.fails("StoreError", f"^model.impress of {REPO} is damaged: ", fetch())
    hub.altered = lambda content: content
    receiver.fails("StoreError", "is damaged", fetch())
    Path(re.search("downloaded to (.+); delete it", line)[1]).unlink()
    assert receiver.run(fetch()) == sender.run("result = logits(learner)")


def test_shortened_download_is_refused(hub, sender, receiver):
    push(sender)
    hub.altered = lambda content: content[:-1000]
    receiver.fails("StoreError", f"^cannot download model.impress of {REPO}: ", fetch())


def test_file_that_is_no_store(hub, receiver):
    hub.put(REPO, "model.impress", b"\x80\x04 a pickle, say")
    receiver.fails("StoreError", f"^model.impress of {REPO} is no store of impresslearn", fetch())


@pytest.mark.parametrize(
    ("failure", "kind", "expected"),
    [
        ((401, ""), "InputError", "^no permission to write to someone/digits-1: pass token="),
        ((403, ""), "InputError", "^no permission to write to someone/digits-1: pass token="),
        ((404, "RepoNotFound"), "InputError", "^no permission to write to someone/digits-1"),
        ((413, ""), "InputError", "^the hub refused this for someone/digits-1: status 413"),
        ((500, ""), "MissingDataError", "^the hub cannot serve someone/digits-1 now: status 500"),
    ],
)
@pytest.mark.parametrize("where", ["/api/repos/create", "/commit/main"])
def test_push_that_is_refused(hub, sender, failure, kind, expected, where):
    hub.broken = lambda request: failure if request.path.endswith(where) else None
    sender.run(ANY)
    sender.fails(kind, expected, f"push_to_hub(learner, {REPO!r}, token={TOKEN!r})")
    assert len(hub.repositories[REPO].commits if REPO in hub.repositories else [None]) == 1


def test_push_without_or_with_a_wrong_token(hub, sender):
    sender.run(ANY)
    for token in ("None", "False", "'hf_of_somebody_else'"):
        line = sender.fails(
            "InputError",
            "^no permission to write",
            f"push_to_hub(learner, {REPO!r}, token={token})",
        )
        assert "hf_of" not in line


def test_push_to_a_branch_that_is_not_there(hub, sender):
    push_to_branch = f"push_to_hub(learner, {REPO!r}, token={TOKEN!r}, revision='v2')"
    sender.run(ANY)
    sender.fails("MissingDataError", f"^{REPO} has no revision 'v2'; .* make it on", push_to_branch)


@pytest.mark.parametrize(
    ("failure", "kind", "expected"),
    [
        (
            (401, "RepoNotFound"),
            "MissingDataError",
            "^no repository someone/digits-1, or a private",
        ),
        ((401, ""), "InputError", "^no permission to read someone/digits-1: pass token="),
        ((403, "GatedRepo"), "InputError", "ask its owner for access"),
        ((403, ""), "InputError", "^no permission to read someone/digits-1: pass token="),
        ((404, "RepoNotFound"), "MissingDataError", "^no repository someone/digits-1"),
        ((404, "EntryNotFound"), "MissingDataError", "has no file 'model.impress'; pass"),
        ((404, "RevisionNotFound"), "MissingDataError", "^someone/digits-1 has no revision"),
        ((500, ""), "MissingDataError", "^the hub cannot serve someone/digits-1 now: status 500"),
    ],
)
def test_download_that_is_refused(hub, receiver, failure, kind, expected):
    hub.put(REPO, "model.impress", b"never sent")
    hub.broken = lambda request: failure if "/resolve/" in request.path else None
    receiver.fails(kind, expected, fetch())


def test_connection_that_breaks_off(hub, sender, receiver):
    sender.run(ANY)
    hub.broken = lambda request: (0, "")
    reason = f"^{REPO}: the hub cannot be reached.*; check"
    sender.fails("MissingDataError", reason, f"push_to_hub(learner, {REPO!r}, token={TOKEN!r})")
    receiver.fails("MissingDataError", reason, fetch())


def test_what_is_not_there(hub, receiver):
    receiver.fails("MissingDataError", f"^no repository {REPO}", fetch())
    hub.put(REPO, "other.impress", b"")
    receiver.fails("MissingDataError", f"^{REPO} has no file 'model.impress'; pass", fetch())
    code = fetch(", revision='v9', filename='other.impress'")
    receiver.fails("MissingDataError", f"^{REPO} has no revision 'v9'; name a branch, tag", code)


def test_server_that_is_no_hub(hub, receiver):
    hub.put(REPO, "model.impress", b"")
    hub.broken = lambda request: (204, "")
    receiver.fails("MissingDataError", "does not answer like a hub; check HF_ENDPOINT", fetch())


def test_hub_out_of_reach(workers):
    nobody = workers[2]
    nobody.run("cache, learner = None, quick_learner()")
    reason = f"^{REPO}: the hub cannot be reached"
    nobody.fails("MissingDataError", f"{reason}, and model.impress is not in the cache; ", fetch())
    nobody.fails("MissingDataError", f"{reason}; check the conn", f"push_to_hub(learner, {REPO!r})")
    offline = "import huggingface_hub.constants as c; c.HF_HUB_OFFLINE = True\n"
    nobody.fails("MissingDataError", reason, offline + fetch())


@pytest.mark.parametrize(
    "repo_id", ["", "digits", "a/b/c", "a b/c", "../x", "a/b..c", "a/-b", None]
)
def test_names_that_no_repository_has(hub, sender, receiver, repo_id):
    expected = "^a repository is named 'owner/name', .* got "
    sender.run(ANY)
    sender.fails("InputError", expected, f"push_to_hub(learner, {repo_id!r})")
    receiver.fails("InputError", expected, f"from_hub({repo_id!r})")
    assert not hub.requests


@pytest.mark.parametrize("filename", ["", ".", "/etc/x", "../x", "a/../../x", "README.md"])
def test_names_that_no_file_has(hub, sender, receiver, filename):
    sender.run(ANY)
    push_it = f"push_to_hub(learner, {REPO!r}, filename={filename!r})"
    sender.fails("InputError", "^filename must be", push_it)
    receiver.fails("InputError", "^filename must be", fetch(f", filename={filename!r}"))
    assert not hub.requests


def test_nothing_is_sent_when_the_store_cannot_be_written(hub, sender):
    sender.run(ANY)
    sender.fails("UnknownTaskError", "'x'", f"push_to_hub(learner, {REPO!r}, tasks=['x'])")
    assert not hub.requests


def test_without_huggingface_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(il.MissingDependencyError, match=r"pip install 'impresslearn\[hub\]'"):
        from_hub(REPO)
