"""A model hub in memory: the part of its HTTP interface that a push and a download use.

It stands behind the HTTP library that the hub's client is built on, so nothing leaves the process.
`broken` makes requests fail with a status and a code (status 0: no answer at all), `altered`
changes what is sent.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import _http

http = importlib.import_module(HfHubHTTPError.__bases__[0].__module__.partition(".")[0])
REPO = "someone/digits-1"
TOKEN = "hf_of_the_owner"


@dataclass
class Repository:
    """All files and the message of every commit on the main branch, the last one last."""

    private: bool = False
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)

    def add(self, message: str, files: dict[str, bytes]) -> str:
        present = self.commits[-1][1] if self.commits else {}
        self.commits.append((message, present | files))
        return f"{len(self.commits):040x}"


@dataclass
class Hub:
    """The hub; `with hub.connected():` makes the client talk to it."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[Any] = field(default_factory=list)
    broken: Callable[[Any], tuple[int, str] | None] = lambda request: None
    altered: Callable[[bytes], bytes] = lambda content: content

    @property
    def files(self) -> dict[str, bytes]:
        return self.repositories[REPO].commits[-1][1]

    def put(self, path: str, content: bytes) -> None:
        """A file from somewhere else, as a commit."""
        self.repositories.setdefault(REPO, Repository()).add("put", {path: content})

    @contextmanager
    def connected(self) -> Iterator[Hub]:
        huggingface_hub.set_client_factory(
            lambda: http.Client(
                transport=http.MockTransport(self._answer),
                event_hooks={"request": [_http.hf_request_event_hook]},
            )
        )
        yield self
        huggingface_hub.set_client_factory(_http.default_client_factory)

    def _answer(self, request: Any) -> Any:
        self.requests.append(request)
        failure = self.broken(request)
        if failure is not None:
            return _failure(*failure) if failure[0] else _no_answer()
        path = request.url.path
        allowed = request.headers.get("Authorization") == f"Bearer {TOKEN}"
        if path == "/api/validate-yaml":
            good = json.loads(request.content)["content"].startswith("---\n")
            return http.Response(200 if good else 400, json={"errors": [], "warnings": []})
        if "/resolve/" in path:
            return self._file(request.method, path, allowed)
        if path == "/api/repos/create" and allowed:
            return self._create(json.loads(request.content))
        if not allowed or REPO not in self.repositories:
            return _failure(401, "RepoNotFound")
        if "/preupload/" in path:
            if not path.endswith("/main"):
                return _failure(404, "RevisionNotFound")
            mode = {"uploadMode": "regular", "shouldIgnore": False}
            given = json.loads(request.content)["files"]
            return http.Response(200, json={"files": [{"path": f["path"], **mode} for f in given]})
        assert path == f"/api/models/{REPO}/commit/main", path
        header, *added = (json.loads(line)["value"] for line in request.content.splitlines())
        files = {each["path"]: base64.b64decode(each["content"]) for each in added}
        oid = self.repositories[REPO].add(header["summary"], files)
        url = f"https://huggingface.co/{REPO}/commit/{oid}"
        return http.Response(200, json={"success": True, "commitOid": oid, "commitUrl": url})

    def _create(self, wish: dict[str, Any]) -> Any:
        repo_id = f"{wish['organization']}/{wish['name']}"
        exists = repo_id in self.repositories
        if not exists:  # releases of the client put the wish for a private one differently
            private = wish.get("visibility") == "private" or wish.get("private") is True
            self.repositories[repo_id] = Repository(private)
            self.repositories[repo_id].add("initial commit", {".gitattributes": b""})
        return http.Response(
            409 if exists else 200, json={"url": f"https://huggingface.co/{repo_id}"}
        )

    def _file(self, method: str, path: str, allowed: bool) -> Any:
        repo_id, _, rest = path[1:].partition("/resolve/")
        revision, _, name = rest.partition("/")
        repository = self.repositories.get(repo_id)
        if repository is None or (repository.private and not allowed):
            return _failure(401, "RepoNotFound")
        number = len(repository.commits)
        if revision != "main":
            number = int(revision, 16) if len(revision) == 40 else 0
        if not 0 < number <= len(repository.commits):
            return _failure(404, "RevisionNotFound")
        marks = {"X-Repo-Commit": f"{number:040x}"}
        content = repository.commits[number - 1][1].get(name)
        if content is None:
            return _failure(404, "EntryNotFound", marks)
        marks["ETag"] = f'"{hashlib.sha1(content).hexdigest()}"'
        if method == "HEAD":
            return http.Response(200, headers=marks | {"Content-Length": str(len(content))})
        return http.Response(200, headers=marks, content=self.altered(content))


def _failure(status: int, code: str, marks: dict[str, str] | None = None) -> Any:
    return http.Response(
        status, headers={"X-Error-Code": code, **(marks or {})}, json={"error": "no"}
    )


def _no_answer() -> Any:
    raise http.ConnectError("the connection broke off")
