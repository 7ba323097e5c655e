import math

import pytest
import torch

from impresslearn.training.loop import (
    entropies,
    information_maximisation,
    mean_entropy,
    unit_norm_penalty,
)


def sure_of(*classes, size=4):
    """Logits that leave no doubt."""
    return 1000 * torch.eye(size)[list(classes)]


def test_entropies_by_hand():
    logits = torch.cat([torch.zeros(1, 4), sure_of(2), torch.tensor([[0.0, 0, -1000, -1000]])])
    assert entropies(logits).tolist() == pytest.approx([math.log(4), 0, math.log(2)])
    assert mean_entropy(logits).item() == pytest.approx(math.log(8) / 3)


def test_information_maximisation_by_hand():
    # One class for every input: confident and worthless. Every class once: the best there is.
    assert information_maximisation(sure_of(1, 1, 1, 1)).item() == pytest.approx(0)
    assert information_maximisation(sure_of(0, 1, 2, 3)).item() == pytest.approx(-math.log(4))
    assert information_maximisation(torch.zeros(5, 4)).item() == pytest.approx(0, abs=1e-6)
    assert information_maximisation(sure_of(0, 0, 1, 1)).item() == pytest.approx(-math.log(2))
    logits = sure_of(0, 1, 1).requires_grad_()
    information_maximisation(logits).backward()
    assert logits.grad.isfinite().all()
    # One certain prediction of four classes beside two uniform ones: (3/6, 1/6, 1/6, 1/6).
    marginal = 0.5 * math.log(2) + 0.5 * math.log(6)
    assert information_maximisation(sure_of(0), prior=2.0).item() == pytest.approx(-marginal)
    single = torch.randn(1, 5)  # says nothing about the spread
    assert information_maximisation(single).item() == pytest.approx(mean_entropy(single).item())


def test_penalty_by_hand():
    assert unit_norm_penalty([torch.tensor([0.5, -0.5]), torch.tensor([1.0])]).item() == 0
    alpha = torch.tensor([1.0, -2.0], requires_grad=True)
    penalty = unit_norm_penalty([alpha, torch.zeros(3)])
    assert penalty.item() == 5  # (|1| + |-2| - 1)² + (0 - 1)²
    penalty.backward()
    assert alpha.grad.tolist() == [4, -4]  # 2 (3 - 1) sign
    units = torch.tensor([[1.0, 0.0], [2.0, 0.5]])  # norms 3 and 0.5, averaged over units
    assert unit_norm_penalty([units]).item() == pytest.approx((4 + 0.25) / 2)
