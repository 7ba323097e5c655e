"""`impresslearn env` tells what is there, and says so where something is missing."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from impresslearn.cli.app import app
from impresslearn.cli.env import PACKAGES


def run_env(*arguments):
    result = CliRunner().invoke(app, ["env", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_json():
    import torch

    facts = json.loads(run_env("--json"))
    assert set(PACKAGES) <= set(facts)
    assert facts["torch"].startswith("2.")
    assert facts["cores"] >= 1
    assert facts["threads"] == torch.get_num_threads()
    assert len(facts["cuda_devices"]) == torch.cuda.device_count()


def test_text_has_one_line_a_fact():
    lines = run_env().splitlines()
    assert [line.split()[0] for line in lines] == list(json.loads(run_env("--json")))


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_survives_a_missing_torch(monkeypatch, arguments):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("impresslearn.cli.env.PACKAGES", ("torch", "no-such-package"))
    monkeypatch.setattr("impresslearn.cli.env.Path", lambda _: Path("no-such-file"))
    output = run_env(*arguments)
    assert "no-such-package" in output
    assert "torch_error" in output
