"""Turns the hub client's errors into one line: the repository, what went wrong, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from impresslearn.errors import ImpressLearnError, InputError, MissingDataError, StoreError

SHOWN = 200
"""Characters at most of what a server says."""


@contextmanager
def hub_errors(
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
        at = "" if revision is None else f" at revision {revision!r}"
        uncached = isinstance(error, errors.LocalEntryNotFoundError)
        answered = uncached and _status(error.__cause__) is not None
        cause = error.__cause__ if answered else error
        kind, line = _explained(cause, http_error, repo_id, filename, at, writing)
        raise kind(line) from None


def _explained(
    error: BaseException | None, http_error: type, repo: str, filename: str, at: str, writing: bool
) -> tuple[type[ImpressLearnError], str]:
    """The kind of an error and its line; at: " at revision ..." or nothing."""
    from huggingface_hub import errors

    status = _status(error)
    uncached = isinstance(error, errors.LocalEntryNotFoundError)
    missing = isinstance(error, errors.RepositoryNotFoundError) or status == 404
    if uncached or (status is None and isinstance(error, (ConnectionError, http_error))):
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
    if status is not None:
        said = _line(getattr(error, "server_message", None) or "without a reason")
        busy = status == 429 or status >= 500
        line = f"the hub {'cannot serve' if busy else 'refused'} {repo} now: status {status}"
        return MissingDataError if busy else InputError, f"{line} ({said})"
    if isinstance(error, ValueError):
        return InputError, f"{repo}: {_line(error)}"
    verb = "send" if writing else "download"
    return StoreError, f"cannot {verb} {filename} of {repo}: {_line(error)}"


def _status(error: BaseException | None) -> int | None:
    """The status that an HTTP server answered with; None where no answer came."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _line(error: object) -> str:
    return " ".join(str(error).split())[:SHOWN]
