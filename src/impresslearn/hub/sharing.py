"""`push_to_hub` and `from_hub`: a learner as one store in a repository of a model hub.

A push is one commit, of the store and of the part of the model card that is generated. What comes
back goes through the hub client's cache and is verified like any store; a file holds numbers and
JSON, so loading a stranger's runs none of their code.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
from torch import nn

from impresslearn.errors import MissingDependencyError, StoreError
from impresslearn.hub.card import TaskCount, model_card, renewed
from impresslearn.hub.failures import CARD, Place, hub_errors
from impresslearn.learner import ImpressLearner
from impresslearn.learner.loading import load
from impresslearn.store import describe_store
from impresslearn.store.writing import Weights

FILENAME = "model.impress"


def push_to_hub(
    learner: ImpressLearner,
    repo_id: str,
    *,
    tasks: Sequence[str] | None = None,
    weights: Weights = "stored",
    private: bool | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    filename: str = FILENAME,
    license: str | None = None,
) -> str:
    """Sends a learner to a repository 'owner/name', made if need be; returns the commit's URL.

    tasks, weights: as in `save`. private: of a new repository; by default as its owner has set it.
    token: with write access; by default the one that the hub client was logged in with. revision:
    an existing branch. license: for the model card, such as "mit"; left alone by default. A card
    that is there already keeps all that was not generated.

    Raises InputError for a name that cannot be, and without permission; MissingDataError where the
    hub cannot be reached; MissingDependencyError without huggingface_hub; otherwise as `save`.
    """
    hub = _hub_client()
    place = Place(repo_id, filename, revision, writing=True)
    with TemporaryDirectory(prefix="impresslearn-") as folder:
        path = Path(folder) / FILENAME
        chosen = None if tasks is None else list(tasks)
        learner.save(path, tasks=chosen, weights=weights)
        card = _card(learner, path, chosen, place)
        with hub_errors(place):
            api = hub.HfApi(token=token, **_library())
            api.create_repo(repo_id, private=private, exist_ok=True)
            old = _present_card(api, place, Path(folder) / "card")
            new = card if old is None else renewed(old, card)
            if license is not None:
                new = _with_license(hub, new, license)
            files: dict[str, Path | bytes] = {filename: path}
            if new != old:
                files[CARD] = new.encode()
            commit = api.create_commit(
                repo_id,
                [hub.CommitOperationAdd(name, content) for name, content in files.items()],
                commit_message=commit_message or f"Push {filename} with ImpressLearn",
                revision=revision,
            )
    return str(commit.commit_url)


def from_hub(
    repo_id: str,
    *,
    filename: str = FILENAME,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | os.PathLike | None = None,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    **settings: Any,
) -> ImpressLearner:
    """A learner from a repository 'owner/name', in memory; every byte is verified.

    revision: a branch, tag or commit; the main branch by default. token: for a private repository.
    cache_dir: where downloads are kept, by default where the hub client keeps them; a file that is
    there and up to date is not downloaded again, nor ever changed. module, device, settings: as in
    `load`.

    Raises MissingDataError where there is no such repository or file, or no way to the hub;
    InputError for a name that cannot be, and without permission; StoreError for a file that is
    damaged or no store; MissingDependencyError without huggingface_hub.
    """
    hub = _hub_client()
    place = Place(repo_id, filename, revision)
    with hub_errors(place):
        path = hub.hf_hub_download(
            repo_id, filename, revision=revision, token=token, cache_dir=cache_dir, **_library()
        )
    with _left_alone(Path(path)) as file:
        try:
            return load(file, module=module, device=device, **settings)
        except StoreError as error:
            reason = str(error).replace(str(file), f"{filename} of {repo_id}")
            # The cache shows links to its files: only without the file itself it is fetched again.
            copy = Path(path).resolve()
            raise StoreError(
                f"{reason} (downloaded to {copy}; delete it to fetch it anew)"
            ) from None


def _hub_client() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingDependencyError(
            "this needs huggingface_hub: pip install 'impresslearn[hub]'"
        ) from None
    return huggingface_hub


def _library() -> dict[str, str]:
    from impresslearn import __version__

    return {"library_name": "impresslearn", "library_version": __version__}


def _card(learner: ImpressLearner, path: Path, chosen: Sequence[str] | None, place: Place) -> str:
    tasks = learner.tasks_.all() if chosen is None else map(learner.tasks_.learned, chosen)
    needed = {"filename": place.filename, "revision": place.revision}
    usual = {"filename": FILENAME, "revision": None}
    given = "".join(f", {name}={value!r}" for name, value in needed.items() if value != usual[name])
    facts = describe_store(path)
    return model_card(facts, TaskCount.of(tasks), place.repo_id, place.filename, given)


def _present_card(api: Any, place: Place, folder: Path) -> str | None:
    """The card that the repository has now, or None."""
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        found = api.hf_hub_download(place.repo_id, CARD, revision=place.revision, local_dir=folder)
    except LocalEntryNotFoundError:  # the hub was not reached: that says nothing about the card
        raise
    except EntryNotFoundError:
        return None
    return Path(found).read_bytes().decode("utf-8", errors="replace")


def _with_license(hub: ModuleType, card: str, name: str) -> str:
    parsed = hub.ModelCard(card)
    parsed.data.license = name
    return str(parsed)


@contextmanager
def _left_alone(path: Path) -> Iterator[Path]:
    """The file, or a copy of it where SQLite would leave a log beside the file by reading it.

    That is so for a store that was uploaded while a learner worked on it: byte 18 of the file, the
    version needed to write it, is then 2.
    """
    with path.open("rb") as file:
        start = file.read(20)
    if start[18:19] != b"\2":
        yield path
        return
    with TemporaryDirectory(prefix="impresslearn-") as folder:
        yield Path(shutil.copyfile(path, Path(folder) / path.name))
