"""Pushing to and loading from a hub in memory: learners, their cards, and errors of one line."""

from __future__ import annotations

import re
import sqlite3
import sys
from pathlib import Path

import pytest
import torch
from hub_stand_in import REPO, TOKEN
from huggingface_hub import constants

import impresslearn as il
from impresslearn import InputError, MissingDataError, StoreError, from_hub, push_to_hub
from impresslearn.hub.card import BEGIN, END, LISTED_TASKS, model_card, renewed
from impresslearn.state.tasks import LearnedTask
from impresslearn.store import describe_store
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


@pytest.fixture
def card_of(tmp_path):
    def make(learner, tasks=None, revision=None, **saving):
        path = tmp_path / "store.impress"
        learner.save(path, overwrite=True, **saving)
        tasks = learner.tasks_.all() if tasks is None else tasks
        return model_card(describe_store(path), tasks, "someone/digits", "model.impress", revision)

    return make


def test_says_what_the_file_holds_and_how_to_load_it(learner, card_of, tmp_path):
    card = card_of(learner)
    mask = (learner.tasks_["first"].bytes + learner.tasks_["second"].bytes) / 2
    size = (tmp_path / "store.impress").stat().st_size
    for line in (
        "# digits",
        "| network | `lenet_300_100`, 708 parameters, in the file |",
        "| input of one example | 16 |",
        "| masks | 2 over 3 layers |",
        f"| basis tasks (a mask each) | 2, {round(mask):,} bytes each on average |",
        f"| new tasks (coefficients) | 1, {learner.tasks_['new'].bytes:,} bytes each on average |",
        "| coefficients stored in | int5 |",
        f"| file | `model.impress`, {size:,} bytes |",
        "learner = il.from_hub('someone/digits')",
        "learner.predict(inputs, task='first')",
        "Tasks: `first`, `second`, `new`.",
    ):
        assert line in card.splitlines()
    assert str(tmp_path) not in card
    card = card_of(learner, revision="v2", weights="seed")
    assert "drawn again from their seed" in card
    assert "il.from_hub('someone/digits', revision='v2')" in card
    card = card_of(quick_learner())
    assert "| basis tasks (a mask each) | none |" in card
    assert "Tasks:" not in card
    assert "predict" not in card


def test_names_a_few_dozen_tasks_at_most(learner, card_of):
    tasks = [LearnedTask(f"task-{i}", (0, 1), 1) for i in range(LISTED_TASKS + 2000)]
    card = card_of(learner, tasks)
    assert f"`task-{LISTED_TASKS - 1}` and 2,000 more." in card
    assert f"task-{LISTED_TASKS}`" not in card
    assert f"`task-{LISTED_TASKS - 1}`." in card_of(learner, tasks[:LISTED_TASKS])


def test_names_cannot_break_the_card(learner, card_of):
    hostile = f"a`b|c\n\n# d {END} {{{{ x }}}}" + "e" * 200
    card = card_of(learner, [LearnedTask(hostile, (0, 1), 1)])
    listed = next(line for line in card.splitlines() if line.startswith("Tasks: "))
    assert listed.count("`") == 2
    assert "a'b¦c # d" in listed
    assert len(listed) < 100
    plain = card_of(learner)
    assert renewed(card, plain) == plain


@pytest.mark.parametrize("custom", ["no mark", f"{BEGIN} only", f"{END} before {BEGIN}"])
def test_a_card_without_a_generated_part_stays_as_it_is(custom):
    assert renewed(custom, f"# digits\n{BEGIN}\nnew\n{END}\n") == custom


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
