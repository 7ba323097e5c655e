"""README's Python runs from its first block to its last, as a reader would run it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def code(heading: str) -> str:
    """The Python blocks under a heading of README, one after the other."""
    part = re.split(r"^## ", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    chosen = next(each for each in part if each.startswith(heading))
    return "\n".join(re.findall(r"```python\n(.*?)```", chosen, flags=re.DOTALL))


def run(folder: Path, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_in_code(tmp_path):
    printed = run(tmp_path, code("In code"))
    assert float(printed.split()[0]) > 0.85
    assert (tmp_path / "digits.impress").exists()


@pytest.mark.slow
def test_a_network_that_was_trained_before(tmp_path):
    accuracy, size, _ = run(tmp_path, code("A network that was trained before")).split()
    assert float(accuracy) > 0.8
    assert int(size) < 4000


@pytest.mark.slow
def test_few_labels(tmp_path):
    accuracy, size, _ = run(tmp_path, code("Few labels")).split()
    assert float(accuracy) > 0.7
    assert int(size) < 500


def test_text(tmp_path):
    assert run(tmp_path, code("Text, and features")).split() == ["['card']"]


def test_your_own_method_in_ten_lines(tmp_path):
    program = code("Your own method")
    table = run(tmp_path, program)
    for word in ("average accuracy", "forgetting", "mine"):
        assert word in table
    own = program[program.index("X = [") : program.index("result = ")]
    assert len([line for line in own.splitlines() if line.strip()]) <= 10
