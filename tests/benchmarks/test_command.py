"""`python -m benchmarks` makes a target's record, from the cache the second time."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*words):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, words)],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_target_is_reproduced_and_reported(tmp_path):
    assert "parameters" in run("list")
    first = run("reproduce", "parameters", "--out", tmp_path, "--workers", 1)
    record = json.loads((tmp_path / "parameters.json").read_text())
    assert record["target"] == "parameters"
    assert record["rows"]
    again = run("reproduce", "parameters", "--out", tmp_path, "--workers", 1)
    assert f"{len(record['rows'])} rows" in first
    assert "0 jobs run" in again
    assert "|" in run("report", tmp_path, "--markdown")
    assert (tmp_path / "report.html").is_file()
