"""What goes wrong between here and a hub ends in one line that says what to do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hub_stand_in import REPO, TOKEN
from huggingface_hub import constants

import impresslearn as il
from impresslearn import InputError, MissingDataError, StoreError, from_hub, push_to_hub

NOT_WRITABLE = "^no permission to write to someone/digits-1: pass token="
UNREACHABLE = "^someone/digits-1: the hub cannot be reached.*; check the connection, the proxy, HF_"


def fails(kind, line, verb, *arguments, **settings):
    """The one line of the error that must come."""
    with pytest.raises(kind, match=line) as caught:
        verb(*arguments, **settings)
    assert "\n" not in str(caught.value)
    assert "hf_of" not in str(caught.value)  # no token is told
    return str(caught.value)


def test_damaged_download_is_refused_and_can_be_fetched_anew(hub, learner):
    push_to_hub(learner, REPO, token=TOKEN)
    hub.altered = lambda content: content[:-1000]
    fails(StoreError, f"^cannot download model.impress of {REPO}: ", from_hub, REPO)
    hub.altered = lambda content: content.replace(b"first", b"fIrst")
    line = fails(StoreError, f"^model.impress of {REPO} is damaged: ", from_hub, REPO)
    hub.altered = lambda content: content
    fails(StoreError, "is damaged", from_hub, REPO)
    Path(re.search("downloaded to (.+); delete it", line)[1]).unlink()
    assert list(from_hub(REPO).tasks_) == ["first", "second", "new"]
    hub.commit("", {"model.impress": b"\x80\x04 a pickle, say"})
    fails(StoreError, f"^model.impress of {REPO} is no store of impresslearn", from_hub, REPO)


NO_REPOSITORY = f"^no repository {REPO}, or a private"
BUSY = f"^the hub cannot serve {REPO} now: status 500"
REFUSED = [
    ((401, ""), (InputError, NOT_WRITABLE), (MissingDataError, NO_REPOSITORY)),
    ((404, "RepoNotFound"), (InputError, NOT_WRITABLE), (MissingDataError, NO_REPOSITORY)),
    ((403, ""), (InputError, NOT_WRITABLE), (InputError, f"^no permission to read {REPO}: pass")),
    ((403, "GatedRepo"), None, (InputError, "a gated one is opened by its owner")),
    ((404, "EntryNotFound"), None, (MissingDataError, "has no file 'model.impress'; pass")),
    ((404, "RevisionNotFound"), None, (MissingDataError, f"^{REPO} has nothing; name a branch")),
    ((413, ""), (InputError, f"^the hub refused {REPO} now: status 413"), None),
    ((500, ""), (MissingDataError, BUSY), (MissingDataError, BUSY)),
    ((204, ""), None, (MissingDataError, UNREACHABLE)),
    ((0, ""), (MissingDataError, UNREACHABLE), (MissingDataError, "model.impress is not in the")),
]


@pytest.mark.parametrize(("failure", "pushed", "loaded"), REFUSED)
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
    fails(MissingDataError, f"^no repository {REPO}", from_hub, REPO)
    for token in (None, False, "hf_of_somebody_else"):
        fails(InputError, NOT_WRITABLE, push_to_hub, learner, REPO, token=token)
    push_to_hub(learner, REPO, token=TOKEN)
    fails(MissingDataError, f"^{REPO} has no file 'x'; pass", from_hub, REPO, filename="x")
    line = f"^{REPO} has nothing at revision 'v9'; name a branch"
    fails(MissingDataError, f"{line}, tag", from_hub, REPO, revision="v9")
    asked = {"token": TOKEN, "revision": "v9"}
    fails(MissingDataError, f"{line}, which must be there", push_to_hub, learner, REPO, **asked)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    fails(MissingDataError, f"{UNREACHABLE}.*HF_HUB_OFFLINE$", push_to_hub, learner, REPO)


NO_NAME = "^a repository is named 'owner/name', .* got "
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
