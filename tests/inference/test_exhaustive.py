"""Tasks that are run together answer as each does alone, in bounded memory."""

from functools import partial
from itertools import chain
from unittest import mock

import pytest
import torch

from impresslearn.coefficients.masks import MaskMixture
from impresslearn.coefficients.parametrisation import Coefficients, task_weights
from impresslearn.inference import KnownTask, Mixture, exhaustive
from impresslearn.inference.exhaustive import SharedFeatures, outputs_of_tasks
from impresslearn.masks import random_bank
from impresslearn.networks import adapt, create_backbone
from impresslearn.networks.prediction import TaskView
from toys import FEATURES, lenet, pictures, quick_learner, resnet

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
        mixture = Mixture(numbers.alpha, numbers.output_scale, numbers.residual)
        make = partial(view, numbers, classes)
        tasks.append(KnownTask(f"t{number}", classes, make, None, partial(lambda m: m, mixture)))
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


def test_features_of_a_shared_body_are_computed_once():
    """Tasks that bring a head alone, and readouts, read the same features."""
    network = resnet("group")
    body = adapt(network.module, num_classes=3, input_shape=(3, 8, 8), head="own")
    for settings in ({}, {"granularity": "readout"}):
        learner = quick_learner(body, precision="coded", **settings)
        learner.add_masks(2, source="disjoint_kernels") if settings else None
        for seed in range(6):
            learner.learn_task(f"t{seed}", pictures(seed))
        tasks, inputs = learner._known_tasks("all"), pictures(2)[0][:6]
        alone = [task.view().logits(body, inputs) for task in tasks]
        shared = SharedFeatures(body, inputs)
        counted = mock.patch.object(
            type(body), "forward", autospec=True, side_effect=type(body).forward
        )
        with counted as forward:
            for task, expected in zip(tasks, alone, strict=True):
                logits = shared.logits(task.view())
                torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)
        bodies = len(set(chain(*(task.view().feature_keys for task in tasks))))
        assert forward.call_count <= 3 * bodies
        assert learner.infer_task(inputs).method == "exhaustive"
