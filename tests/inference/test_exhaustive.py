"""Tasks that are run together answer as each does alone, in bounded memory."""

from functools import partial

import pytest
import torch

from impresslearn.coefficients.masks import MaskMixture
from impresslearn.coefficients.parametrisation import Coefficients, task_weights
from impresslearn.inference import KnownTask, exhaustive
from impresslearn.inference.exhaustive import outputs_of_tasks
from impresslearn.masks import random_bank
from impresslearn.networks import create_backbone
from impresslearn.networks.prediction import TaskView
from toys import FEATURES, lenet

SPECS = (
    MaskMixture(),
    MaskMixture(True),
    MaskMixture(output_scale=True),
    MaskMixture(True, output_scale=True),
    MaskMixture(residual=True),
)
INPUTS = torch.randn(9, FEATURES, generator=torch.Generator().manual_seed(1))


def drawn(backbone, bank, count, specs=SPECS):
    """Tasks of random numbers, of every kind in turn, of 2 and 3 classes, over 3 to all masks."""
    generator, tasks = torch.Generator().manual_seed(0), []

    def view(numbers, classes):
        return TaskView(task_weights(bank, backbone, numbers), None, classes)

    for number in range(count):
        depth = len(bank) if number % 2 else 3
        spec = specs[number % len(specs)]
        layout = spec.layout(backbone, depth, 0)
        values = tuple(torch.randn(tensor.shape, generator=generator) for tensor in layout)
        numbers = Coefficients((spec,), (values,), depth)
        classes = 2 + number % 2
        make = partial(view, numbers, classes)
        tasks.append(KnownTask(f"t{number}", classes, make, None, partial(lambda m: m, numbers)))
    return tasks


def check_outputs(backbone, bank, tasks, inputs, least_together):
    """Every task once, with the logits of its own view; the most tasks of a chunk."""
    seen, most = {}, 0
    for positions, members, logits in outputs_of_tasks(backbone, bank, tasks, inputs):
        most = max(most, len(members))
        for position, task, together in zip(positions, members, logits, strict=True):
            alone = task.view().logits(backbone, inputs)
            torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4)
            seen[position] = task.name
    assert [seen[position] for position in range(len(seen))] == [task.name for task in tasks]
    assert most >= least_together


@pytest.mark.parametrize("specs", [SPECS, SPECS[:1]], ids=["all kinds", "per layer"])
@pytest.mark.parametrize("product_bytes", [48 * 2**20, 0], ids=["together", "alone"])
@pytest.mark.parametrize("make", [lenet, partial(create_backbone, "linear", 3, in_features=16)])
def test_mixtures_of_a_perceptron_answer_as_alone(make, product_bytes, specs, monkeypatch):
    monkeypatch.setattr(exhaustive, "PRODUCT_BYTES", product_bytes)
    backbone = make()
    bank = random_bank(backbone.layers, 5, sparsity=0.5, seed=0)
    tasks = drawn(backbone, bank, 48, specs)
    check_outputs(backbone, bank, tasks, INPUTS, least_together=24 if product_bytes else 1)
    check_outputs(backbone, bank, tasks[:1], INPUTS[:1], least_together=1)
