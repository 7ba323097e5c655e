"""`push_to_hub` and `from_hub`: a learner as one store file in a repository of a model hub.

A push is one commit of the file and the generated part of the model card. A download goes through
the hub client's cache and is verified like any store. A store holds numbers and JSON, so loading a
stranger's file runs none of their code.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Literal

import torch
from torch import nn

from impresslearn.errors import (
    ImpressLearnError,
    InputError,
    MissingDataError,
    MissingDependencyError,
    StoreError,
)
from impresslearn.hub.card import FILENAME, model_card, renewed
from impresslearn.learner import ImpressLearner
from impresslearn.learner.loading import load

CARD = "README.md"


def push_to_hub(
    learner: ImpressLearner,
    repo_id: str,
    *,
    tasks: Sequence[str] | None = None,
    weights: Literal["stored", "seed"] = "stored",
    private: bool | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    filename: str = FILENAME,
) -> str:
    """Commits a learner to a repository, which is made if it is missing; returns the commit's URL.

    - learner: what to push.
    - repo_id: "owner/name".
    - tasks, weights: as in `save`; by default everything is pushed.
    - private: whether a new repository is private; the owner's default if None.
    - token: with write access; by default the hub client's login.
    - revision: an existing branch; the main branch by default.
    - commit_message: "Push model.impress with ImpressLearn" by default.
    - filename: of the store in the repository.

    A model card that exists keeps everything except its generated part. Raises InputError for an
    invalid name and without permission, MissingDataError if the hub cannot be reached,
    MissingDependencyError without huggingface_hub, and the errors of `save`.
    """
    hub = _hub_client(repo_id, filename)
    with TemporaryDirectory(prefix="impresslearn-") as folder:
        path = Path(folder) / FILENAME
        names = list(learner.tasks_) if tasks is None else list(tasks)
        learner.save(path, tasks=None if tasks is None else names, weights=weights)
        card = model_card(learner, names, repo_id, filename, path.stat().st_size, revision)
        with _hub_errors(repo_id, filename, revision):
            api = hub.HfApi(token=token)
            api.create_repo(repo_id, private=private, exist_ok=True)
            with suppress(hub.errors.RemoteEntryNotFoundError):  # a repository without a card
                old = api.hf_hub_download(repo_id, CARD, revision=revision, local_dir=folder)
                card = renewed(Path(old).read_bytes().decode(errors="replace"), card)
            commit = api.create_commit(
                repo_id,
                [
                    hub.CommitOperationAdd(filename, path),
                    hub.CommitOperationAdd(CARD, card.encode()),
                ],
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
    """A learner from a repository, in memory; every byte is verified.

    - repo_id: "owner/name".
    - filename: of the store in the repository.
    - revision: a branch, tag or commit; the main branch by default.
    - token: for a private repository; by default the hub client's login.
    - cache_dir: the folder of downloads; by default the hub client's. A file that is there and up
      to date is not downloaded again, and never changed.
    - module, device, settings: as in `load`.

    Raises MissingDataError if the repository or file is missing or the hub cannot be reached,
    InputError for an invalid name and without permission, StoreError for a damaged file, and
    MissingDependencyError without huggingface_hub.
    """
    hub = _hub_client(repo_id, filename)
    with _hub_errors(repo_id, filename, revision):
        path = hub.hf_hub_download(
            repo_id, filename, revision=revision, token=token, cache_dir=cache_dir
        )
    with TemporaryDirectory(prefix="impresslearn-") as folder:
        # SQLite may write beside a store that was in use when it was uploaded, so not in the cache.
        copy = shutil.copyfile(path, Path(folder) / FILENAME)
        try:
            return load(copy, module=module, device=device, **settings)
        except StoreError as error:
            reason = str(error).replace(str(copy), f"{filename} of {repo_id}")
            # The cached path is a link, and deleting a link does not bring a new download.
            advice = f"downloaded to {Path(path).resolve()}; delete it to download it again"
            raise StoreError(f"{reason} ({advice})") from None


def _hub_client(repo_id: str, filename: str) -> ModuleType:
    """huggingface_hub. Raises InputError for a repository or file that no hub can have."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
        from huggingface_hub.utils import HFValidationError, validate_repo_id
    except ImportError:
        line = "this needs huggingface_hub: pip install 'impresslearn[hub]'"
        raise MissingDependencyError(line) from None
    try:
        validate_repo_id(repo_id)
        is_named = isinstance(repo_id, str) and "/" in repo_id
    except HFValidationError:
        is_named = False
    if not is_named:
        raise InputError(f"a repository must be named 'owner/name', got {repo_id!r}")
    path = PurePosixPath(str(filename))
    if not path.name or path.is_absolute() or ".." in path.parts or str(path) == CARD:
        raise InputError(f"filename must be a path within the repository, got {filename!r}")
    return huggingface_hub


@contextmanager
def _hub_errors(repo_id: str, filename: str, revision: str | None) -> Iterator[None]:
    """Turns the errors of the hub client into this library's, with one line of advice."""
    from huggingface_hub import errors

    # The base is an error of the HTTP library, which differs between releases of the client.
    http_error: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    permission = f"no permission for {repo_id}; pass token=... with access to it"
    at = "" if revision is None else f" at revision {revision!r}"
    try:
        yield
    except ImpressLearnError:
        raise
    except errors.GatedRepoError:
        raise InputError(f"{permission}; its owner must open it to you") from None
    except errors.RepositoryNotFoundError:
        line = f"no repository {repo_id}, or it is private: check its name, or pass token=..."
        raise MissingDataError(line) from None
    except (errors.RevisionNotFoundError, errors.RemoteEntryNotFoundError):
        line = f"{repo_id} has no {filename!r}{at}; check revision=... and filename=..."
        raise MissingDataError(line) from None
    except (http_error, OSError, ValueError, RuntimeError) as error:
        # What the client reports as "not in the cache" may have been a refusal.
        response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
        if response is not None and response.status_code in (401, 403):
            raise InputError(permission) from None
        if response is not None:
            line = f"the hub refused {filename} of {repo_id}: status {response.status_code}"
            raise MissingDataError(line) from None
        if isinstance(error, (http_error, ConnectionError, errors.LocalEntryNotFoundError)):
            line = f"cannot reach the hub for {repo_id}, and {filename}{at} is not in the cache"
            raise MissingDataError(f"{line}; check the connection and HF_ENDPOINT") from None
        reason = " ".join(str(error).split())
        raise StoreError(f"cannot transfer {filename} of {repo_id}: {reason}") from None
