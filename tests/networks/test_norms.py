"""Norm policies: what they build and convert, and one that is added from outside."""

import pytest
import torch
from torch import nn

from impresslearn.errors import InputError
from impresslearn.networks import norms
from toys import resnet


@pytest.mark.parametrize(
    ("channels", "groups"), [(512, 32), (64, 16), (48, 12), (33, 3), (37, 1), (7, 1), (1, 1)]
)
def test_group_norm_takes_the_largest_divisor_that_leaves_four_channels(channels, groups):
    norm = norms.make_norm(channels, "group")
    assert norm.num_groups == groups
    assert not list(norm.parameters())


@pytest.mark.parametrize(
    ("norm", "tracked"), [("batch", False), ("per_task", True), ("shared", True), ("group", False)]
)
def test_every_policy_runs_adds_no_weights_and_tracks_where_it_keeps(norm, tracked):
    backbone = resnet(norm)
    assert backbone.norm == norm
    assert backbone.num_parameters == backbone.num_maskable
    assert backbone.has_statistics == tracked
    assert backbone.shares_statistics == (norm == "shared")
    assert backbone.has_task_statistics == (norm == "per_task")
    assert backbone.normalises_by_batch == (norm == "batch")
    assert len(backbone.initial_statistics()) == (40 if tracked else 0)
    assert backbone.forward(backbone.weights, torch.randn(2, 3, 8, 8), mode="train").shape == (2, 3)


def trained():
    module = nn.Sequential(
        nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3, momentum=None), nn.Sequential(nn.BatchNorm1d(3))
    )
    module(torch.randn(8, 2, 5) + 1)
    return module


def test_names_of_statistics():
    names = ("1.running_mean", "1.running_var", "2.0.running_mean", "2.0.running_var")
    module = trained()
    assert norms.statistic_names(module) == names
    assert norms.statistic_names(nn.BatchNorm1d(3)) == ("running_mean", "running_var")
    norms.drop_counters(module)
    assert tuple(name for name, _ in module.named_buffers()) == names
    assert module[1].momentum == 0.1


def test_conversion():
    kept = trained()
    mean = kept[1].running_mean.clone()
    assert norms.convert_batch_norms(kept, "per_task") == "per_task"
    assert torch.equal(kept[1].running_mean, mean)
    assert norms.convert_batch_norms(kept, "batch") == "batch"
    assert not list(kept.buffers())
    assert norms.convert_batch_norms(kept, "shared") == "batch"
    inputs = torch.randn(16, 2, 5) * 3 + 2
    means = kept.eval()(inputs).mean((0, 2))
    torch.testing.assert_close(means, torch.zeros(3), atol=1e-5, rtol=0)
    assert norms.convert_batch_norms(nn.Linear(2, 2), "group") == "none"


def test_policies_that_do_not_exist_or_cannot_take_over():
    for norm in ("group", "none"):
        with pytest.raises(InputError, match=f"'{norm}'; choose batch or per_task or shared"):
            norms.convert_batch_norms(trained(), norm)
    with pytest.raises(InputError, match="norm of a backbone must be"):
        norms.convert_batch_norms(nn.Linear(2, 2), "layer")
    for norm in ("none", "layer", "Batch"):
        with pytest.raises(InputError, match=r"must be batch or .* or group, got"):
            norms.make_norm(4, norm)
