"""`push_to_hub` and `from_hub`: a learner as one store file in a repository of a model hub.

A store holds numbers and JSON, so loading a stranger's file runs none of their code. The client,
huggingface_hub, is imported when a verb is called.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Literal

import torch
from torch import nn

from impresslearn import __version__
from impresslearn.checks import check_kind
from impresslearn.errors import InputError, MissingDataError, MissingDependencyError, StoreError
from impresslearn.learner import ImpressLearner
from impresslearn.learner.loading import load

FILENAME = "model.impress"
CARD = "README.md"


def push_to_hub(
    learner: ImpressLearner,
    repo_id: str,
    *,
    tasks: Sequence[str] | None = None,
    weights: Literal["stored", "seed"] = "stored",
    private: bool | None = None,
    token: str | bool | None = None,
    filename: str = FILENAME,
) -> str:
    """Commits a learner to a repository, which is made if it is missing; returns the commit's URL.

    A repository without a model card gets one; an existing card stays as it is.

    - `learner`: what to push.
    - `repo_id`: "owner/name".
    - `tasks`, `weights`: as in `save`; by default everything is pushed.
    - `private`: whether a new repository is private; the owner's default if None.
    - `token`: with write access; by default the hub client's login.
    - `filename`: of the store in the repository.

    Raises InputError for an invalid name and without permission, MissingDataError if the hub cannot
    be reached, MissingDependencyError without huggingface_hub, and the errors of `save`.
    """
    check_kind("learner", learner, ImpressLearner)
    hub = _hub_client(repo_id, filename)
    with TemporaryDirectory(prefix="impresslearn-") as folder:
        path = Path(folder) / FILENAME
        names = list(learner.tasks_) if tasks is None else list(tasks)
        learner.save(path, tasks=None if tasks is None else names, weights=weights)
        files = [hub.CommitOperationAdd(filename, path)]
        with _hub_errors(repo_id, filename):
            api = hub.HfApi(token=token)
            api.create_repo(repo_id, private=private, exist_ok=True)
            if not api.file_exists(repo_id, CARD):
                card = _model_card(learner, names, repo_id, filename)
                files.append(hub.CommitOperationAdd(CARD, card.encode()))
            message = f"Push {filename} with ImpressLearn"
            commit = api.create_commit(repo_id, files, commit_message=message)
    return str(commit.commit_url)


def from_hub(
    repo_id: str,
    *,
    filename: str = FILENAME,
    revision: str | None = None,
    token: str | bool | None = None,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    **settings: Any,
) -> ImpressLearner:
    """A learner from a repository, in memory; every byte is verified.

    - `repo_id`: "owner/name".
    - `filename`: of the store in the repository.
    - `revision`: a branch, tag or commit; the main branch by default.
    - `token`: for a private repository; by default the hub client's login.
    - `module`, `device`, `settings`: as in `load`.

    A file in the hub client's cache that is up to date is not downloaded again. Raises
    MissingDataError if the repository or file is missing or the hub cannot be reached, InputError
    for an invalid name and without permission, StoreError for a damaged file, and
    MissingDependencyError without huggingface_hub.
    """
    hub = _hub_client(repo_id, filename)
    with _hub_errors(repo_id, filename):
        path = hub.hf_hub_download(repo_id, filename, revision=revision, token=token)
    with TemporaryDirectory(prefix="impresslearn-") as folder:
        # SQLite may write beside a store that was in use when it was uploaded, so not in the cache.
        copy = shutil.copyfile(path, Path(folder) / FILENAME)
        try:
            return load(copy, module=module, device=device, **settings)
        except StoreError as error:
            reason = str(error).replace(str(copy), f"{filename} of {repo_id}")
            # The cached path is a link, and deleting a link does not bring a new download.
            advice = f"downloaded to {os.path.realpath(path)}; delete it to download it again"
            raise StoreError(f"{reason} ({advice})") from None


def _model_card(learner: ImpressLearner, names: list[str], repo_id: str, filename: str) -> str:
    """The card of a repository: what its file holds, and how to load it."""
    backbone = learner.backbone
    arguments = [repr(repo_id)]
    if filename != FILENAME:
        arguments.append(f"filename={filename!r}")
    if backbone.spec is None:
        arguments.append("module=module")  # of the same structure as the one that was adapted
    size = sum(learner.tasks_[name].bytes for name in names)
    return f"""---
library_name: impresslearn
tags: [impresslearn, continual-learning, supermasks]
---

# {repo_id.split("/")[-1]}

A frozen network ({backbone.name}, {backbone.num_parameters:,} parameters) and {len(names):,} tasks
of {size:,} bytes in all, learned with ImpressLearn {__version__}.

```python
import impresslearn as il  # pip install 'impresslearn[hub]'
learner = il.from_hub({", ".join(arguments)})
print(list(learner.tasks_))
```
"""


def _hub_client(repo_id: str, filename: str) -> ModuleType:
    """huggingface_hub. Raises InputError for a repository or file that no hub can have."""
    try:
        import huggingface_hub
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
def _hub_errors(repo_id: str, filename: str) -> Iterator[None]:
    """Turns the errors of the hub client into this library's, with one line of advice."""
    from huggingface_hub import errors

    # The base is an error of the HTTP library, which differs between releases of the client.
    http_error: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    try:
        yield
    except errors.RepositoryNotFoundError:  # a gated repository, too
        line = f"no access to {repo_id}: check its name, or pass token=... of a user with access"
        raise MissingDataError(line) from None
    except (errors.RevisionNotFoundError, errors.RemoteEntryNotFoundError):
        line = f"{repo_id} has no {filename!r}; check revision=... and filename=..."
        raise MissingDataError(line) from None
    except (http_error, OSError, ValueError, RuntimeError) as error:
        # What the client reports as "not in the cache" may have been a refusal.
        response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
        status = None if response is None else response.status_code
        if status in (401, 403):
            raise InputError(f"no permission for {repo_id}; pass token=... with access") from None
        reason = f"status {status}" if status else " ".join(str(error).split())
        line = f"cannot transfer {filename} of {repo_id}: {reason}"
        raise MissingDataError(f"{line}; check the connection and HF_ENDPOINT") from None
