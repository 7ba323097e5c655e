"""A model hub in memory: the part of its HTTP interface that a push and a download use.

It stands behind the HTTP library that the hub's client is built on, so nothing leaves the process.
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
NO_REPOSITORY = (401, "RepoNotFound")
NO_REVISION = (404, "RevisionNotFound")


@dataclass
class Hub:
    """A hub with at most one repository; `with hub.connected():` makes the client talk to it.

    commits: message and all files of every commit on the main branch, the last one last. broken:
    makes a request fail with a status (0: no answer at all) and a code. altered: changes what is
    sent.
    """

    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)
    private: bool = False
    requests: list[Any] = field(default_factory=list)
    broken: Callable[[Any], tuple[int, str] | None] = lambda request: None
    altered: Callable[[bytes], bytes] = lambda content: content

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[-1][1] if self.commits else {}

    def commit(self, message: str, files: dict[str, bytes]) -> str:
        self.commits.append((message, self.files | files))
        return f"{len(self.commits):040x}"

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
        if failure == (0, ""):
            raise http.ConnectError("the connection broke off")
        if failure is not None:
            return _failure(*failure)
        path = request.url.path
        allowed = request.headers.get("Authorization") == f"Bearer {TOKEN}"
        if path == "/api/validate-yaml":
            return http.Response(200, json={"errors": [], "warnings": []})
        if "/resolve/" in path:
            return self._file(request.method, path, allowed)
        if path == "/api/repos/create" and allowed:
            return self._create(json.loads(request.content))
        if not allowed or not self.commits:
            return _failure(*NO_REPOSITORY)
        if "/preupload/" in path and not path.endswith("/main"):
            return _failure(*NO_REVISION)
        if "/preupload/" in path:
            mode = {"uploadMode": "regular", "shouldIgnore": False}
            given = json.loads(request.content)["files"]
            return http.Response(200, json={"files": [{"path": f["path"], **mode} for f in given]})
        assert path == f"/api/models/{REPO}/commit/main", path
        header, *added = (json.loads(line)["value"] for line in request.content.splitlines())
        files = {each["path"]: base64.b64decode(each["content"]) for each in added}
        oid = self.commit(header["summary"], files)
        url = f"https://huggingface.co/{REPO}/commit/{oid}"
        return http.Response(200, json={"success": True, "commitOid": oid, "commitUrl": url})

    def _create(self, wish: dict[str, Any]) -> Any:
        exists = bool(self.commits)
        if not exists:  # releases of the client put the wish for a private one differently
            self.private = wish.get("visibility") == "private" or wish.get("private") is True
            self.commit("initial commit", {".gitattributes": b""})
        url = f"https://huggingface.co/{REPO}"
        return http.Response(409 if exists else 200, json={"url": url})

    def _file(self, method: str, path: str, allowed: bool) -> Any:
        repo_id, _, rest = path[1:].partition("/resolve/")
        revision, _, name = rest.partition("/")
        if repo_id != REPO or not self.commits or (self.private and not allowed):
            return _failure(*NO_REPOSITORY)
        number = len(self.commits)
        if revision != "main":
            number = int(revision, 16) if len(revision) == 40 else 0
        if not 0 < number <= len(self.commits):
            return _failure(*NO_REVISION)
        headers = {"X-Repo-Commit": f"{number:040x}"}
        content = self.commits[number - 1][1].get(name)
        if content is None:
            return _failure(404, "EntryNotFound", headers)
        headers["ETag"] = f'"{hashlib.sha1(content).hexdigest()}"'
        if method == "HEAD":
            return http.Response(200, headers=headers | {"Content-Length": str(len(content))})
        return http.Response(200, headers=headers, content=self.altered(content))


def _failure(status: int, code: str, headers: dict[str, str] | None = None) -> Any:
    headers = {"X-Error-Code": code, **(headers or {})}
    return http.Response(status, headers=headers, json={"error": "no"})
