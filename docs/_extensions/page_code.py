"""The code of a page, run as a reader would run it: from the first block to the last.

Python blocks share one namespace and one folder with each other and with the commands between them.

| block | what is done with it |
|---|---|
| python, {code-cell} | executed and shown with its output |
| bash | run by bash and shown with its output; lines of `impresslearn` alone, in this process |
| any that begins with a comment that is a file name, `# blobs.py` | written to that file |
| others, such as text and console | shown only |

Before a block, `<!-- not run: REASON -->` leaves it out, and `<!-- server: URL -->` starts it
beside the page, in place of the one before, and waits until the URL answers. The port 8000 becomes
a free one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.error import URLError

from typer.testing import CliRunner

from impresslearn.cli.app import app

BLOCK = re.compile(
    r"^(?:<!-- (?P<order>not run|server): (?P<word>[^\n]+?) -->\n\n?)?"
    r"```(?P<language>[^\n`]+)\n(?P<code>.*?)^```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"# ([\w-]+\.(?:py|toml))\n")
COMMAND = re.compile(r"""impresslearn [^|&;<>$`'"()]*""")
"""A line that runs one command and needs no shell beyond its patterns."""
PORT = "8000"
TIMEOUT = 60.0
"""Seconds that a server may take until it answers."""


class PageError(Exception):
    """A block that failed: the page, its line and why."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page. line: of its first line of code; end: where its text ends."""

    language: str
    code: str
    line: int
    end: int
    order: str | None = None
    word: str = ""

    @property
    def kind(self) -> str:
        """python, bash, file, server or shown."""
        if self.order == "not run":
            return "shown"
        if FILE.match(self.code):
            return "file"
        if self.order == "server":
            return "server"
        if self.language in ("python", "{code-cell}", "{code-cell} python"):
            return "python"
        return "bash" if self.language == "bash" else "shown"


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [
        Block(
            each["language"].strip(),
            each["code"],
            text.count("\n", 0, each.start("code")) + 1,
            each.end(),
            each["order"],
            each["word"] or "",
        )
        for each in BLOCK.finditer(text)
    ]


def run_page(page: Path, folder: Path) -> list[str]:
    """What each block of a page prints, run in a folder. Raises PageError at the first failure."""
    text = page.read_text(encoding="utf-8")
    with _Run(page, folder).started() as run:
        return [run.run(block) for block in blocks(text)]


def missing_command(page: Path) -> str | None:
    """A command that the page's bash blocks need and that is not installed."""
    used = "\n".join(each.code for each in blocks(page.read_text("utf-8")) if each.kind == "bash")
    return next((name for name in ("curl",) if name in used and not shutil.which(name)), None)


class _Run:
    """One page under way."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.server: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        scripts = str(Path(sys.executable).parent)
        path = os.pathsep.join([scripts, os.environ.get("PATH", "")])
        self.environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}

    @contextmanager
    def started(self) -> Iterator[_Run]:
        """In the folder; a server is ended afterwards."""
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            yield self
        finally:
            os.chdir(before)
            self._end_server()

    def run(self, block: Block) -> str:
        """What the block prints."""
        act = {"python": self._python, "bash": self._bash, "file": _write, "server": self._serve}
        if block.kind not in act:
            return ""
        return (act[block.kind](block) or "").replace(self.port, PORT).rstrip()

    def _python(self, block: Block) -> str:
        printed = StringIO()
        # Blank lines in front give a traceback the line numbers of the page.
        program = "\n" * (block.line - 1) + block.code.replace(PORT, self.port)
        try:
            with redirect_stdout(printed):
                exec(compile(program, str(self.page), "exec"), self.names)
        except Exception:
            place = f"{self.page}:{block.line}"
            raise PageError(f"{place}: a block failed\n{traceback.format_exc()}") from None
        return printed.getvalue()

    def _bash(self, block: Block) -> str:
        code = block.code.replace(PORT, self.port)
        lines = code.replace("\\\n", " ").splitlines()
        if all(map(COMMAND.fullmatch, lines)):
            return "".join(self._command(block, line) for line in lines)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            env=self.environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            what = f"{self.page}:{block.line}: status {done.returncode}"
            raise PageError(f"{what}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def _command(self, block: Block, line: str) -> str:
        """What an `impresslearn` command prints; to start a process takes seconds."""
        words = ["bash", "-c", f"printf '%s\\0' {line}"]  # patterns replaced, no comment
        words = subprocess.run(words, capture_output=True, text=True).stdout.split("\0")[1:-1]
        runner, looks = CliRunner(), {"prog_name": "impresslearn", "terminal_width": 78}
        done = runner.invoke(app, words, env={"COLUMNS": "80"}, **looks)
        if done.exit_code:
            what = f"{self.page}:{block.line}: {line}: status {done.exit_code}"
            raise PageError(f"{what}\n{done.output}\n{done.exception}")
        return done.stdout

    def _end_server(self) -> None:
        if self.server is not None:
            with suppress(ProcessLookupError):  # it ended by itself
                os.killpg(self.server.pid, signal.SIGKILL)
            self.server.wait()

    def _serve(self, block: Block) -> None:
        self._end_server()  # the port is one
        command, log = block.code.replace(PORT, self.port), self.folder / "server.log"
        with log.open("wb") as written:
            server = subprocess.Popen(
                ["bash", "-c", command],
                env=self.environment,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )
        self.server = server
        url, deadline = block.word.replace(PORT, self.port), time.monotonic() + TIMEOUT
        while not _answers(url):
            if server.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(encoding="utf-8")
                raise PageError(f"{self.page}:{block.line}: nothing answers at {url}\n{said}")
            time.sleep(0.1)


def _write(block: Block) -> None:
    name = FILE.match(block.code)
    assert name is not None
    Path(name[1]).write_text(block.code, encoding="utf-8")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (URLError, OSError):
        return False


def _free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])
