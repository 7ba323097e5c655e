import math
from itertools import pairwise

import pytest
import torch

from impresslearn.data import TensorBatches
from impresslearn.errors import TrainingError
from impresslearn.training.loop import (
    Recipe,
    entropies,
    fit,
    information_maximisation,
    mean_entropy,
    unit_norm_penalty,
)

INPUTS = torch.arange(10, dtype=torch.float32)[:, None]
TARGETS = torch.arange(10)
SOURCE = TensorBatches(INPUTS, TARGETS)


def steps_of(recipe, source=SOURCE, seed=0):
    """The targets of each batch, and how far each step went: under SGD, its learning rate."""
    parameter = torch.zeros((), requires_grad=True)
    seen, places = [], []

    def loss(inputs, targets):
        seen.append(targets.tolist())
        places.append(parameter.item())
        return parameter.double()  # of gradient 1

    assert fit([parameter], loss, source, recipe, seed).steps == len(seen)
    return seen, [before - after for before, after in pairwise([*places, parameter.item()])]


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"epochs": 3, "batch_size": 4}, 9),
        ({"epochs": 3, "batch_size": 100}, 3),
        ({"epochs": 0.5, "batch_size": 5}, 1),
        ({"epochs": 1, "batch_size": 5, "min_steps": 7}, 7),
        ({"epochs": 5, "batch_size": 5, "min_steps": 7}, 10),
        ({"epochs": 0, "min_steps": 2}, 2),
    ],
)
def test_steps(settings, steps):
    recipe = Recipe(optimizer="sgd", **settings)
    assert recipe.total_steps(10) == steps
    assert len(steps_of(recipe)[0]) == steps


def test_every_epoch_shows_everything_once_in_a_new_order():
    seen, _ = steps_of(Recipe(epochs=2, batch_size=5))
    first, second = seen[0] + seen[1], seen[2] + seen[3]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert first != list(range(10))
    recipe = Recipe(epochs=2, batch_size=4)
    assert steps_of(recipe, seed=5) == steps_of(recipe, seed=5)
    assert steps_of(recipe, seed=5)[0] != steps_of(recipe, seed=6)[0]


def test_a_last_batch_of_one_is_skipped():
    nine = TensorBatches(INPUTS[:9], TARGETS[:9])
    assert {len(batch) for batch in steps_of(Recipe(epochs=4, batch_size=4), nine)[0]} == {4}
    assert {len(batch) for batch in steps_of(Recipe(batch_size=1), nine)[0]} == {1}
    one = TensorBatches(INPUTS[:1], TARGETS[:1])
    assert steps_of(Recipe(epochs=3, batch_size=4), one)[0] == [[0]] * 3


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("warm_up", [0, 5])
def test_warm_up_rises_linearly_and_the_schedule_follows(schedule, warm_up):
    settings = {"schedule": schedule, "epochs": 2, "batch_size": 1, "warmup_epochs": warm_up / 10}
    rates, left = steps_of(Recipe(optimizer="sgd", lr=0.5, **settings))[1], 20 - warm_up
    assert rates[:warm_up] == pytest.approx([0.1 * (n + 1) for n in range(warm_up)], abs=1e-5)
    cosine = [0.25 * (1 + math.cos(math.pi * step / left)) for step in range(left)]
    expected = cosine if schedule == "cosine" else [0.5] * left
    assert rates[warm_up:] == pytest.approx(expected, abs=1e-5)
    assert steps_of(Recipe(lr=0.5, batch_size=1, warmup_epochs=0.05))[1][0] <= 0.5


@pytest.mark.parametrize(
    ("name", "momentum", "reference", "settings"),
    [
        ("adam", None, torch.optim.Adam, {}),
        ("adam", 0.5, torch.optim.Adam, {"betas": (0.5, 0.999)}),
        ("adamw", None, torch.optim.AdamW, {}),
        ("rmsprop", 0.5, torch.optim.RMSprop, {"momentum": 0.5}),
        ("sgd", None, torch.optim.SGD, {}),
        ("sgd", 0.5, torch.optim.SGD, {"momentum": 0.5}),
    ],
)
def test_optimizers_are_those_of_torch(name, momentum, reference, settings):
    start = torch.tensor([3.0, -2.0])
    fitted, expected = (start.clone().requires_grad_() for _ in range(2))
    recipe = Recipe(
        optimizer=name, lr=0.1, schedule="constant", momentum=momentum, weight_decay=0.01, epochs=5
    )
    fit([fitted], lambda inputs, targets: fitted.square().sum(), SOURCE, recipe, seed=0)
    optimizer = reference([expected], 0.1, weight_decay=0.01, **settings)
    for _ in range(5):
        optimizer.zero_grad()
        expected.square().sum().backward()
        optimizer.step()
    torch.testing.assert_close(fitted, expected)


def test_the_final_loss_is_the_mean_of_the_last_epoch():
    parameter = torch.zeros((), requires_grad=True)
    values = iter([100.0] * 3 + [1.0, 2.0, 6.0])

    def loss(inputs, targets):
        return parameter * 0 + next(values)

    result = fit([parameter], loss, SOURCE, Recipe(epochs=2, batch_size=4), seed=0)
    assert result.final_loss == 3
    result = fit([parameter], loss, SOURCE, Recipe(epochs=0), seed=0)
    assert result.steps == 0
    assert math.isnan(result.final_loss)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("steps", [1, 7, 120])
def test_a_loss_that_is_not_finite_and_parameters_that_the_last_step_spoils(bad, steps):
    parameter = torch.zeros((), requires_grad=True)
    recipe, loss = Recipe(lr=0.25, epochs=0, min_steps=steps), lambda *_: parameter * bad + bad
    with pytest.raises(TrainingError, match=r"became (nan|inf) at step \d+.*rate 0.25"):
        fit([parameter], loss, SOURCE, recipe, seed=0)
    parameter = torch.zeros((), requires_grad=True)
    recipe = Recipe(optimizer="sgd", lr=3e38, schedule="constant", epochs=1)
    with pytest.raises(TrainingError, match="parameters became NaN or infinite"):
        fit([parameter], lambda *_: parameter * 1e10, SOURCE, recipe, seed=0)


def test_dropout_follows_the_seed_and_global_randomness_is_left_alone():
    dropout = torch.nn.Dropout(0.5)

    def run(seed):
        parameter = torch.ones(50, requires_grad=True)
        recipe = Recipe(epochs=2, batch_size=4)
        fit([parameter], lambda *_: dropout(parameter).square().sum(), SOURCE, recipe, seed)
        return parameter.detach()

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = run(0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(run(0), first)
    assert not torch.equal(run(1), first)


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
