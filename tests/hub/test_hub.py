"""Pushing to and loading from a hub in memory: learners, their cards, and errors of one line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from hub_stand_in import REPO, TOKEN
from huggingface_hub import constants

import impresslearn as il
from impresslearn import InputError, MissingDataError, StoreError, from_hub, push_to_hub
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
    push_to_hub(learner, REPO, token=TOKEN)
    assert [message for message, _ in hub.commits[1:]] == [
        "Push model.impress with ImpressLearn"
    ] * 2
    pinned = from_hub(REPO, revision=f"{2:040x}")
    assert list(pinned.tasks_) == ["first", "second", "new"]
    assert same(logits(pinned), early)
    before = files_of(cache)  # the client's, which loading must not change
    assert any("model.impress" in name for name in before)
    pinned.add_random_masks(2)
    hub.broken = lambda request: (503, "")
    assert same(logits(from_hub(REPO, revision=f"{2:040x}")), early)
    assert files_of(cache) == before


def test_chosen_tasks_without_weights_under_another_name(hub, learner):
    name = "small/one.impress"
    push_to_hub(learner, REPO, token=TOKEN, tasks=["first"], weights="seed", filename=name)
    assert f"from_hub({REPO!r}, filename={name!r})" in hub.files["README.md"].decode()
    loaded = from_hub(REPO, filename=name)
    assert (list(loaded.tasks_), len(loaded.bank_)) == (["first"], 1)
    assert same(logits(loaded, ["first"]), logits(learner, ["first"]))


def test_an_existing_card_stays_as_it_is(hub, learner):
    push_to_hub(learner, REPO, token=TOKEN)
    card = hub.files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: impresslearn\n")
    assert f"learner = il.from_hub({REPO!r})" in card.splitlines()
    assert "and 3 tasks" in card
    hub.commit("", {"README.md": b"All mine.\r\n"})
    push_to_hub(learner, REPO, token=TOKEN)
    assert hub.files["README.md"] == b"All mine.\r\n"


def test_private_repository_and_token(hub, learner):
    push_to_hub(learner, REPO, token=TOKEN, private=True)
    assert hub.private
    assert {each.headers.get("Authorization") for each in hub.requests} == {f"Bearer {TOKEN}"}
    with pytest.raises(il.MissingDataError, match=f"^no access to {REPO}"):
        from_hub(REPO)
    assert same(logits(from_hub(REPO, token=TOKEN)), logits(learner))


def test_custom_module(hub):
    learner = quick_learner(il.adapt(ConvNet(), num_classes=3)).learn_basis("first", pictures(0))
    push_to_hub(learner, REPO, token=TOKEN)
    assert b"module=module" in hub.files["README.md"]
    with pytest.raises(StoreError, match="pass one of the same structure as module="):
        from_hub(REPO)
    loaded, images = from_hub(REPO, module=ConvNet()), pictures(9)[0]
    assert torch.equal(loaded.logits(images, "first"), learner.logits(images, "first"))


def fails(kind, line, verb, *arguments, **settings):
    """The one line of the error that must come."""
    with pytest.raises(kind, match=line) as caught:
        verb(*arguments, **settings)
    assert "\n" not in str(caught.value)
    assert "hf_of" not in str(caught.value)  # the token is not shown
    return str(caught.value)


def test_damaged_download_is_refused_and_can_be_fetched_again(hub, learner):
    push_to_hub(learner, REPO, token=TOKEN)
    hub.altered = lambda content: content[:-1000]
    fails(MissingDataError, f"^cannot transfer model.impress of {REPO}: ", from_hub, REPO)
    hub.altered = lambda content: content.replace(b"first", b"fIrst")
    line = fails(StoreError, f"^model.impress of {REPO} is damaged: ", from_hub, REPO)
    hub.altered = lambda content: content
    Path(re.search("downloaded to (.+); delete it", line)[1]).unlink()
    assert list(from_hub(REPO).tasks_) == ["first", "second", "new"]
    hub.commit("", {"model.impress": b"\x80\x04 a pickle, say"})
    fails(StoreError, f"^model.impress of {REPO} ", from_hub, REPO)


MISSING = (MissingDataError, f"^no access to {REPO}: check its name, or pass token=")
NO_PERMISSION = (InputError, f"^no permission for {REPO}; pass token=")
NOT_SENT = (MissingDataError, f"^cannot transfer model.impress of {REPO}: .*; check the connection")


@pytest.mark.parametrize(
    ("failure", "pushed", "loaded"),
    [
        ((404, "RepoNotFound"), MISSING, MISSING),
        ((403, ""), NO_PERMISSION, NO_PERMISSION),
        ((403, "GatedRepo"), None, MISSING),
        ((404, "EntryNotFound"), None, (MissingDataError, "has no 'model.impress'; check")),
        ((413, ""), NOT_SENT, None),
        ((500, ""), NOT_SENT, NOT_SENT),
        ((0, ""), NOT_SENT, NOT_SENT),
    ],
)
def test_what_the_hub_refuses(hub, learner, failure, pushed, loaded):
    for where in ("/api/repos/create", "/commit/main") if pushed else ():
        hub.broken = lambda request, at=where: failure if request.url.path.endswith(at) else None
        fails(*pushed, push_to_hub, learner, REPO, token=TOKEN)
        assert len(hub.commits) <= 1
    if loaded:
        hub.commit("", {"model.impress": b"never sent"})
        hub.broken = lambda request: failure if "/resolve/" in request.url.path else None
        fails(*loaded, from_hub, REPO)


def test_what_is_not_there_not_allowed_and_offline(hub, learner, monkeypatch):
    fails(*MISSING, from_hub, REPO)
    for token in (None, False, "hf_of_somebody_else"):
        fails(*MISSING, push_to_hub, learner, REPO, token=token)
    push_to_hub(learner, REPO, token=TOKEN)
    fails(MissingDataError, f"^{REPO} has no 'x'; check", from_hub, REPO, filename="x")
    line = f"^{REPO} has no 'model.impress'; check revision"
    fails(MissingDataError, line, from_hub, REPO, revision="v9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    fails(*NOT_SENT, push_to_hub, learner, REPO)


NO_NAME = "^a repository must be named 'owner/name', got "
NO_PATH = "^filename must be a path within the repository, got "


@pytest.mark.parametrize(
    ("given", "line"),
    [
        *(({"repo_id": name}, NO_NAME) for name in ("", "digits", "a/b/c", "../x", "a/-b", None)),
        *(({"filename": name}, NO_PATH) for name in ("", "/etc/x", "a/../../x", "README.md")),
    ],
)
def test_nothing_is_sent_for_names_that_cannot_be(hub, learner, given, line):
    fails(InputError, line, push_to_hub, learner, **{"repo_id": REPO} | given)
    fails(InputError, line, from_hub, **{"repo_id": REPO} | given)
    fails(il.UnknownTaskError, "'x'", push_to_hub, learner, REPO, tasks=["x"])
    assert not hub.requests


def test_without_huggingface_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(il.MissingDependencyError, match=r"pip install 'impresslearn\[hub\]'"):
        from_hub(REPO)
