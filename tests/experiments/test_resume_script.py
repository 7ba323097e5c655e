"""`paper/resume.py`: rows of a target, divided among processes, and the record that they make."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import REAL, run

SCRIPT = Path(__file__).parents[2] / "paper" / "resume.py"


def resume(folder, *arguments):
    own = ["--scale", "smoke", "--out", folder, "--cache", folder / "cache"]
    command = [sys.executable, str(SCRIPT), "overlap", *map(str, own), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_runs_share_the_rows_and_the_record_is_that_of_reproduce(tmp_path):
    first = resume(tmp_path, "--finish")
    assert "are missing" in first.communicate()[1]
    assert first.returncode == 1
    both = [resume(tmp_path), resume(tmp_path)]
    printed = [each.communicate()[0].splitlines() for each in both]
    kept = json.loads((tmp_path / "partial" / "overlap.json").read_text())["rows"]
    assert all(each.returncode == 0 for each in both)
    assert len(printed[0]) + len(printed[1]) == len(kept) > 0
    assert resume(tmp_path).communicate()[0] == ""
    assert resume(tmp_path, "--finish").communicate() == ("", "")
    found = json.loads((tmp_path / "overlap.json").read_text())
    assert all(row["commit"] for row in found["rows"] if "commit" in row)
    run(
        "overlap",
        "--scale",
        "smoke",
        "--out",
        tmp_path / "whole",
        "--cache",
        tmp_path / "cache",
        program=REAL,
    )
    whole = json.loads((tmp_path / "whole" / "overlap.json").read_text())
    assert found["code"].keys() == whole["code"].keys()
    assert len(found["code"]["hash"]) == len(whole["code"]["hash"])
    assert found["hardware"] == whole["hardware"] | {"threads": 1}
    assert found["figures"] == whole["figures"]
    without = [{k: v for k, v in row.items() if k != "commit"} for row in found["rows"]]
    assert without == whole["rows"]
