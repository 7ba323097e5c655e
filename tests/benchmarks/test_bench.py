"""`impresslearn bench`: the gate, the records, the file."""

import pytest
import torch
from benchmarks.bench import cases, steps
from benchmarks.bench.cases import run_bench

from impresslearn import create_backbone
from impresslearn.errors import ImpressLearnError, InputError
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


def test_every_way_of_mixing_takes_the_same_step(monkeypatch):
    backbone = create_backbone("lenet_300_100", 10, in_features=20, widths=(9, 5))
    bank, losses = random_bank(backbone.layers, 4), []
    batch = torch.randn(8, 20), torch.arange(8) % 10
    real = torch.Tensor.backward
    monkeypatch.setattr(
        torch.Tensor, "backward", lambda self, *a, **k: (losses.append(self.item()), real(self))
    )
    for make in (steps.coefficient_step, steps.loop_step, steps.dense_step):
        make(backbone, bank, *batch)()
    assert losses == pytest.approx(losses[:1] * 3, rel=1e-5)
    for make in (steps.plain_step, steps.popup_step, steps.sorted_popup_step):
        make(backbone, *batch)()
    assert losses[4] == pytest.approx(losses[5], rel=1e-5)
