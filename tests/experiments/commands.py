"""Runs of the command line in processes of their own, for tests that end them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ODD = [sys.executable, str(Path(__file__).with_name("odd_targets.py"))]
REAL = [sys.executable, "-m", "impresslearn"]
TIMES = ("seconds", "job_seconds")
PATIENCE = 300


def start(*arguments: object, program: list[str] | None = None) -> subprocess.Popen[str]:
    """A running `impresslearn reproduce …` at the head of its own group of processes."""
    return subprocess.Popen(
        [*(program or ODD), "reproduce", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(process: subprocess.Popen[str], patience: float = PATIENCE) -> tuple[int, str, str]:
    """Exit status, standard output and standard error, lines of progress left out."""
    out, err = process.communicate(timeout=patience)
    told = [line for line in err.splitlines(True) if not re.search(r": \d+ of \d+ after \d", line)]
    return process.returncode, out, "".join(told)


def run(
    *arguments: object, program: list[str] | None = None, patience: float = PATIENCE
) -> tuple[int, str, str]:
    """The same, from start to end."""
    return finish(start(*arguments, program=program), patience)


def record(path: Path) -> dict[str, Any]:
    """What a run wrote, without the times."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return {key: value for key, value in found.items() if key not in TIMES}


def outcomes(folder: Path) -> int:
    """How many outcomes a cache holds."""
    return len(list(folder.glob("*/??/*.json")))


def marks(data: Path) -> list[int]:
    """The numbers of the jobs that ran, in order."""
    path = data / "marks"
    return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until(true: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Raises AssertionError unless it becomes true in time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.01)


def members(group: int) -> list[int]:
    """Living processes of a group, defunct ones left out."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [int(row[0]) for row in rows if int(row[1]) == group and not row[2].startswith("Z")]
