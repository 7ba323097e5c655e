"""The hub client's errors in one line: the repository, what went wrong, and what to do.

The client raises errors of its own, of whichever HTTP library it uses, and of the operating system;
all that can happen between here and the hub ends as one of this library's errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from impresslearn.errors import ImpressLearnError, InputError, MissingDataError, StoreError

CARD = "README.md"
SHOWN = 200
"""Characters at most of what a server says."""


@dataclass(frozen=True)
class Place:
    """A file of a repository. Raises InputError where the hub could have no such thing."""

    repo_id: str
    filename: str
    revision: str | None
    writing: bool = False

    def __post_init__(self) -> None:
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils import validate_repo_id

        named = isinstance(self.repo_id, str) and "/" in self.repo_id
        try:
            validate_repo_id(self.repo_id)
        except HFValidationError:
            named = False
        if not named:
            raise InputError(
                "a repository is named 'owner/name', of letters, digits, '-', '_' and '.', got "
                f"{self.repo_id!r}"
            )
        path = PurePosixPath(str(self.filename))
        if not path.name or path.is_absolute() or ".." in path.parts or str(path) == CARD:
            raise InputError(
                f"filename must be a path within the repository, got {self.filename!r}"
            )


@contextmanager
def hub_errors(place: Place) -> Iterator[None]:
    """Turns everything that the hub client raises into InputError, MissingDataError, StoreError."""
    from huggingface_hub.errors import HfHubHTTPError

    # The base of the client's own HTTP error is that of the HTTP library that it was built on.
    http_error: Any = HfHubHTTPError.__bases__[0]
    try:
        yield
    except ImpressLearnError:
        raise
    except (http_error, OSError, ValueError, RuntimeError) as error:
        raise _explained(error, place) from None


def _explained(error: BaseException, place: Place) -> ImpressLearnError:
    from huggingface_hub.errors import (
        EntryNotFoundError,
        FileMetadataError,
        LocalEntryNotFoundError,
    )

    if isinstance(error, LocalEntryNotFoundError):  # not in the cache: the cause says why not here
        cause = error.__cause__
        if isinstance(cause, FileMetadataError):
            return MissingDataError(
                f"{place.repo_id}: the server does not answer like a hub; check HF_ENDPOINT and "
                "the proxy"
            )
        if _status(cause) is None:
            return _unreachable(place, f", and {place.filename}{_at(place)} is not in the cache")
        error = cause or error
    if isinstance(error, EntryNotFoundError):
        return MissingDataError(
            f"{place.repo_id} has no file {place.filename!r}{_at(place)}; pass the name of its "
            "store as filename=..."
        )
    if _status(error) is not None:
        return _refused(error, place)
    if isinstance(error, ConnectionError) or _of_http_library(error):
        return _unreachable(place)
    if isinstance(error, (OSError, RuntimeError)):
        verb = "send" if place.writing else "download"
        return StoreError(f"cannot {verb} {place.filename} of {place.repo_id}: {_line(error)}")
    return InputError(f"{place.repo_id}: {_line(error)}")


def _refused(error: BaseException, place: Place) -> ImpressLearnError:
    """The error for an answer of the hub that is not the file."""
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    status = _status(error)
    if isinstance(error, RevisionNotFoundError):
        return MissingDataError(
            f"{place.repo_id} has no revision {place.revision!r}; name a branch"
            f"{', and make it on the hub first' if place.writing else ', tag or commit of it'}"
        )
    if isinstance(error, GatedRepoError):
        return InputError(
            f"no permission to read {place.repo_id}: ask its owner for access, then pass token=..."
        )
    if place.writing and (status in (401, 403) or isinstance(error, RepositoryNotFoundError)):
        return InputError(
            f"no permission to write to {place.repo_id}: pass token=... with write access, or log "
            "in to the hub"
        )
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        return MissingDataError(
            f"no repository {place.repo_id}, or a private one: check its name, and pass token=... "
            "or log in to the hub"
        )
    if status in (401, 403):
        return InputError(
            f"no permission to read {place.repo_id}: pass token=... with access to it"
        )
    said = _line(getattr(error, "server_message", None) or "")
    reason = f"status {status}{f' ({said})' if said else ''}"
    if status == 429 or (status or 500) >= 500:
        return MissingDataError(
            f"the hub cannot serve {place.repo_id} now: {reason}; try again later"
        )
    return InputError(f"the hub refused this for {place.repo_id}: {reason}")


def _unreachable(place: Place, also: str = "") -> MissingDataError:
    return MissingDataError(
        f"{place.repo_id}: the hub cannot be reached{also}; check the connection, HF_ENDPOINT and "
        "HF_HUB_OFFLINE"
    )


def _status(error: BaseException | None) -> int | None:
    """The status that an HTTP server answered with; None where no answer came."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _of_http_library(error: BaseException) -> bool:
    """Whether it is neither Python's own error nor the client's: no answer came at all."""
    return type(error).__module__.split(".")[0] not in ("builtins", "huggingface_hub")


def _at(place: Place) -> str:
    return "" if place.revision is None else f" at revision {place.revision!r}"


def _line(error: object) -> str:
    return " ".join(str(error).split())[:SHOWN]
