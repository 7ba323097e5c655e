"""`push_to_hub` and `from_hub`: a learner as one store in a repository of a model hub.

A push is one commit, of the store and of the part of the model card that is generated. What comes
back goes through the hub client's cache and is verified like any store; a file holds numbers and
JSON, so loading a stranger's runs none of their code.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
from torch import nn

from impresslearn import __version__
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
from impresslearn.store import describe_store
from impresslearn.store.writing import Weights

CARD = "README.md"
SHOWN = 200
"""Characters at most of what a server says."""
LIBRARY = {"library_name": "impresslearn", "library_version": __version__}


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
    hub = _hub_client(repo_id, filename)
    chosen = None if tasks is None else list(tasks)
    with TemporaryDirectory(prefix="impresslearn-") as folder:
        path = Path(folder) / FILENAME
        learner.save(path, tasks=chosen, weights=weights)
        kept = learner.tasks_.all() if chosen is None else map(learner.tasks_.learned, chosen)
        card = model_card(describe_store(path), kept, repo_id, filename, revision)
        with _hub_errors(repo_id, filename, revision, writing=True):
            api = hub.HfApi(token=token, **LIBRARY)
            api.create_repo(repo_id, private=private, exist_ok=True)
            old = None
            with suppress(hub.errors.RemoteEntryNotFoundError):  # a repository without a card
                found = api.hf_hub_download(repo_id, CARD, revision=revision, local_dir=folder)
                old = Path(found).read_bytes().decode("utf-8", errors="replace")
            new = card if old is None else renewed(old, card)
            if license is not None:
                parsed = hub.ModelCard(new)
                parsed.data.license = license
                new = str(parsed)
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
    hub = _hub_client(repo_id, filename)
    with _hub_errors(repo_id, filename, revision):
        path = hub.hf_hub_download(
            repo_id, filename, revision=revision, token=token, cache_dir=cache_dir, **LIBRARY
        )
    with TemporaryDirectory(prefix="impresslearn-") as folder:
        # Reading a store that was in use when it was uploaded would write beside the cached file.
        copy = shutil.copyfile(path, Path(folder) / FILENAME)
        try:
            return load(copy, module=module, device=device, **settings)
        except StoreError as error:
            reason = str(error).replace(str(copy), f"{filename} of {repo_id}")
            # The cache shows links to its files: only without the file itself it is fetched again.
            advice = f"downloaded to {Path(path).resolve()}; delete it to fetch it anew"
            raise StoreError(f"{reason} ({advice})") from None


def _hub_client(repo_id: str, filename: str) -> ModuleType:
    """huggingface_hub. Raises InputError where no hub has such a repository and file."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
        from huggingface_hub.utils import HFValidationError, validate_repo_id
    except ImportError:
        line = "this needs huggingface_hub: pip install 'impresslearn[hub]'"
        raise MissingDependencyError(line) from None
    try:
        validate_repo_id(repo_id)
        named = isinstance(repo_id, str) and "/" in repo_id
    except HFValidationError:
        named = False
    if not named:
        letters = "of letters, digits, '-', '_' and '.'"
        raise InputError(f"a repository is named 'owner/name', {letters}, got {repo_id!r}")
    path = PurePosixPath(str(filename))
    if not path.name or path.is_absolute() or ".." in path.parts or str(path) == CARD:
        raise InputError(f"filename must be a path within the repository, got {filename!r}")
    return huggingface_hub


@contextmanager
def _hub_errors(
    repo_id: str, filename: str, revision: str | None, *, writing: bool = False
) -> Iterator[None]:
    """Turns everything that the hub client raises into InputError, MissingDataError, StoreError."""
    from huggingface_hub import errors

    # That of the HTTP library that the client was built on, which differs between releases.
    http_error: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    try:
        yield
    except ImpressLearnError:
        raise
    except (http_error, OSError, ValueError, RuntimeError) as error:
        cause: BaseException | None = error
        if isinstance(error, errors.LocalEntryNotFoundError) and _status(error.__cause__):
            cause = error.__cause__
        offline = _status(cause) is None and isinstance(cause, (ConnectionError, http_error))
        at = "" if revision is None else f" at revision {revision!r}"
        kind, line = _explained(cause, offline, repo_id, filename, at, writing)
        raise kind(line) from None


def _explained(
    error: BaseException | None, offline: bool, repo: str, filename: str, at: str, writing: bool
) -> tuple[type[ImpressLearnError], str]:
    """The kind of an error and its line; at: " at revision ..." or nothing."""
    from huggingface_hub import errors

    status = _status(error)
    uncached = isinstance(error, errors.LocalEntryNotFoundError)
    missing = isinstance(error, errors.RepositoryNotFoundError) or status == 404
    if uncached or offline:
        also = f", and {filename}{at} is not in the cache" if uncached else ""
        advice = "check the connection, the proxy, HF_ENDPOINT and HF_HUB_OFFLINE"
        return MissingDataError, f"{repo}: the hub cannot be reached{also}; {advice}"
    if isinstance(error, errors.EntryNotFoundError):
        advice = "pass the name of its store as filename=..."
        return MissingDataError, f"{repo} has no file {filename!r}{at}; {advice}"
    if isinstance(error, errors.RevisionNotFoundError):
        advice = "a branch, which must be there" if writing else "a branch, tag or commit of it"
        return MissingDataError, f"{repo} has nothing{at}; name {advice}"
    if missing and not writing and not isinstance(error, errors.GatedRepoError):
        advice = "check its name, and pass token=... or log in to the hub"
        return MissingDataError, f"no repository {repo}, or a private one: {advice}"
    if missing or status in (401, 403):
        advice = "pass token=... with access to it; a gated one is opened by its owner"
        return InputError, f"no permission to {'write to' if writing else 'read'} {repo}: {advice}"
    if status is None:
        line = " ".join(str(error).split())[:SHOWN]
        if isinstance(error, ValueError):
            return InputError, f"{repo}: {line}"
        return (
            StoreError,
            f"cannot {'send' if writing else 'download'} {filename} of {repo}: {line}",
        )
    said = " ".join(str(getattr(error, "server_message", None) or "without a reason").split())
    busy = status == 429 or status >= 500
    line = f"the hub {'cannot serve' if busy else 'refused'} {repo} now: status {status}"
    return MissingDataError if busy else InputError, f"{line} ({said[:SHOWN]})"


def _status(error: BaseException | None) -> int | None:
    """The status that an HTTP server answered with; None where no answer came."""
    return getattr(getattr(error, "response", None), "status_code", None)
