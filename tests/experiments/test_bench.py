"""`impresslearn bench`: the gate, the records, the file."""

import json

import pytest
import torch
from typer.testing import CliRunner

from impresslearn import create_backbone
from impresslearn.cli.app import app
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.experiments.bench import cases
from impresslearn.experiments.bench.cases import run_bench
from impresslearn.experiments.bench.steps import (
    coefficient_step,
    dense_step,
    loop_step,
    plain_step,
    popup_step,
    sorted_popup_step,
)
from impresslearn.kernels import reference
from impresslearn.masks import random_bank


def test_wrong_kernels_are_not_timed(monkeypatch):
    class Wrong:
        mix = staticmethod(lambda bits, alpha, weight: weight + 1)
        mask_sums = staticmethod(reference.mask_sums)

    monkeypatch.setattr(cases, "implementation", lambda device: Wrong)
    with pytest.raises(ImpressLearnError, match="do not match"):
        next(run_bench("mix"))


def test_an_unknown_measurement_names_the_others():
    with pytest.raises(InputError, match="references"):
        next(run_bench("mixx"))


@pytest.mark.parametrize("make", [coefficient_step, loop_step, dense_step])
def test_every_way_of_mixing_takes_the_same_step(make, monkeypatch):
    backbone = create_backbone("lenet_300_100", 10, in_features=20, widths=(9, 5))
    bank = random_bank(backbone.layers, 4)
    inputs, targets = torch.randn(8, 20), torch.arange(8) % 10
    losses = []
    real = torch.Tensor.backward
    monkeypatch.setattr(
        torch.Tensor, "backward", lambda self, *a, **k: (losses.append(self.item()), real(self))
    )
    make(backbone, bank, inputs, targets)()
    coefficient_step(backbone, bank, inputs, targets)()
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_popup_and_plain_steps_run():
    backbone = create_backbone("lenet_300_100", 10, in_features=20, widths=(9, 5))
    inputs, targets = torch.randn(8, 20), torch.arange(8) % 10
    for make in (plain_step, popup_step, sorted_popup_step):
        make(backbone, inputs, targets)()


@pytest.mark.slow
def test_the_command_writes_records_and_restores_threads(tmp_path):
    before = torch.get_num_threads()
    command = ["bench", "--only", "popup", "--threads", "1", "--json", str(tmp_path / "b.json")]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert torch.get_num_threads() == before
    records = json.loads((tmp_path / "b.json").read_text())
    assert [record["name"] for record in records] == ["popup_step_ratio", "popup_vs_sort"]
    keys = {"name", "value", "unit", "reference", "ratio", "threads", "device", "n"}
    assert all(keys <= set(record) and record["ratio"] > 0 for record in records)
    assert "popup_step_ratio" in done.stdout
