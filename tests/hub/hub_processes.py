"""Processes that push and load, each with a cache of its own, and what the tests tell them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hub_stand_in import TOKEN

REPO = "someone/digits-1"
PREPARE = """
import impresslearn as il, torch
from impresslearn.hub import from_hub, push_to_hub
from toys import ConvNet, blobs, pictures, quick_learner

def logits(learner, tasks=("first", "new"), inputs=None):
    inputs = blobs(9)[0] if inputs is None else inputs
    return [learner.logits(inputs, name).numpy().tobytes().hex() for name in tasks]
"""
LEARN = """
learner = quick_learner(output_scale=True, precision="int5")
learner.learn_basis("first", blobs(0)).learn_basis("second", blobs(1)).learn_task("new", blobs(2))
"""
ANY = "learner = globals().get('learner') or quick_learner().learn_basis('first', blobs(0))"


class WorkerError(Exception):
    """What a worker's statements raised."""


class Worker:
    """A second process, with a cache of its own."""

    def __init__(self, endpoint: str, home: Path) -> None:
        here = Path(__file__).parent
        kept = {k: v for k, v in os.environ.items() if not k.upper().endswith("_PROXY")}
        kept = {k: v for k, v in kept.items() if not k.startswith(("HF_", "HUGGING"))}
        own = {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "PYTHONPATH": os.pathsep.join([str(here.parent), kept.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
        }
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, str(here / "hub_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=kept | own,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(PREPARE) + "\n")
        self.process.stdin.flush()
        self.ready = False

    def run(self, code: str) -> Any:
        """The value of `result` after the statements. Raises WorkerError with what they raised."""
        assert self.process.stdin is not None
        if not self.ready:
            self.ready = True
            self._answer()
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def fails(self, kind: str, expected: str, code: str) -> str:
        """The one line of an error of that class which the pattern describes."""
        with pytest.raises(WorkerError) as caught:
            self.run(code)
        kinds, line = caught.value.args
        assert kind in kinds, (kinds, line)
        assert "\n" not in line
        assert re.search(expected, line), line
        return line

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise WorkerError(answer["error"], answer["line"])
        return answer["value"]


def push(sender: Worker, arguments: str = "", learn: str = LEARN) -> str:
    return sender.run(
        f"{learn}\nresult = push_to_hub(learner, {REPO!r}, token={TOKEN!r}{arguments})"
    )


def fetch(arguments: str = "", use: str = "logits(loaded)") -> str:
    return f"loaded = from_hub({REPO!r}, cache_dir=cache{arguments})\nresult = {use}"
