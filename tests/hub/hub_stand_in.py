"""A model hub on this machine: the part of the HTTP interface that a push and a download use.

Repositories live in memory. Files go inline in the commit, or those that `large` names through the
basic LFS transfer and, like the real one's, are served by another host (here another name for this
machine) that is to get no token. `broken` makes requests fail with a status and a code
(status 0: no answer at all), `altered` changes what is sent.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_the_owner"


@dataclass
class Commit:
    """All files of a repository at one moment."""

    oid: str
    message: str
    files: dict[str, bytes]


@dataclass
class Repository:
    """Commits on the main branch, the last one last."""

    private: bool
    commits: list[Commit] = field(default_factory=list)

    def add(self, message: str, files: dict[str, bytes]) -> Commit:
        present = self.commits[-1].files if self.commits else {}
        oid = hashlib.sha1(f"{len(self.commits)} {message}".encode()).hexdigest()
        self.commits.append(Commit(oid, message, present | files))
        return self.commits[-1]

    def at(self, revision: str) -> Commit | None:
        if revision == "main":
            return self.commits[-1]
        return next((each for each in self.commits if each.oid == revision), None)


@dataclass
class Request:
    """What came: for the tests to look at."""

    method: str
    path: str
    token: str | None
    host: str
    body: bytes


class Hub:
    """The server; `with Hub() as hub:` starts and stops it."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[Request] = []
        self.large: tuple[str, ...] = ()
        self.broken: Callable[[Request], tuple[int, str] | None] = lambda request: None
        self.altered: Callable[[bytes], bytes] = lambda content: content
        self.server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Bound", (Handler,), {"hub": self})
        )
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Hub:
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def reset(self) -> None:
        """As it was at the start, but for its address."""
        self.repositories.clear()
        self.objects.clear()
        self.requests.clear()
        self.large = ()
        self.broken, self.altered = lambda request: None, lambda content: content

    def put(self, repo_id: str, path: str, content: bytes) -> Commit:
        """A file from somewhere else, as a commit."""
        repository = self.repositories.setdefault(repo_id, Repository(private=False))
        return repository.add(f"put {len(repository.commits)}", {path: content})


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):  # how the base class looks for each method of HTTP
            return self.answer
        raise AttributeError(name)

    def answer(self) -> None:
        authorization = self.headers.get("Authorization")
        token = authorization.removeprefix("Bearer ") if authorization else None
        path = unquote(urlsplit(self.path).path)
        host = str(self.headers.get("Host")).split(":")[0]
        request = Request(self.command, path, token, host, self.body())
        self.hub.requests.append(request)
        failure = self.hub.broken(request)
        if failure is not None and not failure[0]:
            self.connection.close()
            self.close_connection = True
        elif failure is not None:
            self.fail(*failure)
        elif path == "/api/repos/create":
            self.create(request)
        elif path == "/api/validate-yaml":
            good = json.loads(request.body)["content"].startswith("---\n")
            self.send(200 if good else 400, {"errors": [], "warnings": []})
        elif path.startswith("/objects/"):
            self.transfer(request)
        elif path.endswith(".git/info/lfs/objects/batch"):
            self.batch(request)
        elif "/resolve/" in path:
            self.resolve(request, *path[1:].split("/resolve/", 1))
        elif path.startswith("/api/models/"):
            self.repository_verbs(request, path.removeprefix("/api/models/").split("/"))
        else:
            self.fail(404, "")

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def create(self, request: Request) -> None:
        if request.token != TOKEN:
            return self.fail(401, "")
        wish = json.loads(request.body)
        repo_id = f"{wish['organization']}/{wish['name']}"
        exists = repo_id in self.hub.repositories
        if not exists:
            private = wish.get("visibility") == "private" or wish.get("private", False)
            self.hub.repositories[repo_id] = Repository(private)
            self.hub.repositories[repo_id].add("initial commit", {".gitattributes": b""})
        return self.send(409 if exists else 200, {"url": f"{self.hub.url}/{repo_id}"})

    def repository_verbs(self, request: Request, parts: list[str]) -> None:
        repository = self.hub.repositories.get("/".join(parts[:2]))
        if repository is None or request.token != TOKEN:
            return self.fail(401, "RepoNotFound")
        if parts[2:3] == ["preupload"]:
            if parts[3] != "main":
                return self.fail(404, "RevisionNotFound")
            return self.send(
                200, {"files": [self.mode(f) for f in json.loads(request.body)["files"]]}
            )
        if parts[2:3] == ["commit"]:
            return self.commit(request, repository, "/".join(parts[:2]))
        return self.fail(404, "")

    def mode(self, file: dict) -> dict:
        mode = "lfs" if file["path"].endswith(self.hub.large) and self.hub.large else "regular"
        return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}

    def commit(self, request: Request, repository: Repository, repo_id: str) -> None:
        lines = [json.loads(line) for line in request.body.splitlines()]
        header, operations = lines[0]["value"], lines[1:]
        files = {}
        for each in operations:
            value = each["value"]
            inline = each["key"] == "file"
            content = (
                base64.b64decode(value["content"]) if inline else self.hub.objects[value["oid"]]
            )
            files[value["path"]] = content
        made = repository.add(header["summary"], files)
        url = f"{self.hub.url}/{repo_id}/commit/{made.oid}"
        self.send(200, {"success": True, "commitOid": made.oid, "commitUrl": url})

    def batch(self, request: Request) -> None:
        objects = json.loads(request.body)["objects"]
        for each in objects:
            href = f"http://localhost:{self.hub.port}/objects/{each['oid']}"
            each["actions"] = {"upload": {"href": href}}
        self.send(200, {"transfer": "basic", "objects": objects})

    def transfer(self, request: Request) -> None:
        oid = request.path.rsplit("/", 1)[1]
        if request.method == "PUT":
            assert hashlib.sha256(request.body).hexdigest() == oid
            self.hub.objects[oid] = request.body
            return self.send(200, {})
        return self.send(200, self.hub.altered(self.hub.objects[oid]))

    def resolve(self, request: Request, repo_id: str, rest: str) -> None:
        repository = self.hub.repositories.get(repo_id)
        if repository is None or (repository.private and request.token != TOKEN):
            return self.fail(401, "RepoNotFound")
        revision, path = rest.split("/", 1)
        commit = repository.at(revision)
        if commit is None:
            return self.fail(404, "RevisionNotFound")
        if path not in commit.files:
            return self.fail(404, "EntryNotFound", {"X-Repo-Commit": commit.oid})
        content = commit.files[path]
        oid, marks = hashlib.sha256(content).hexdigest(), {"X-Repo-Commit": commit.oid}
        if oid in self.hub.objects:
            marks |= {
                "X-Linked-Etag": f'"{oid}"',
                "X-Linked-Size": str(len(content)),
                "Location": f"http://localhost:{self.hub.port}/objects/{oid}",
            }
            return self.send(302, b"", marks)
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content)
        marks["ETag"] = f'"{blob.hexdigest()}"'
        sent = content if request.method == "HEAD" else self.hub.altered(content)
        return self.send(200, sent, marks)

    def fail(self, status: int, code: str, marks: dict[str, str] | None = None) -> None:
        self.send(status, {"error": "no"}, {"X-Error-Code": code, **(marks or {})})

    def send(self, status: int, content: object, marks: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (marks or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
