"""The example store is built by its script, is sound, and the commands that it prints run."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import impresslearn as il
from impresslearn.learner.loading import verify_store

SCRIPT = Path(__file__).parents[2] / "examples" / "digits_store.py"


@pytest.mark.nightly
def test_the_script_builds_a_store_and_prints_commands_that_run(tmp_path):
    def run(*command):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, text=True, capture_output=True, check=True
        )
        return done.stdout + done.stderr

    printed = run(str(SCRIPT)).splitlines()
    assert verify_store(tmp_path / "digits.impress") == {"tasks": 15, "masks": 5}
    with il.open_store(tmp_path / "digits.impress", readonly=True) as learner:
        assert {task.bytes for task in learner.tasks_.values() if task.role == "learned"} == {322}
    told = [line.partition("#") for line in printed if " serve " not in line]
    assert len(told) == 3
    for command, _, task in told:
        words = shlex.split(command)
        said = run("-m", *words)
        assert not task or f"task {task.removeprefix(' finds ')} " in said
