"""Norm policies: what they build and convert."""

import pytest
import torch
from torch import nn

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


def test_a_new_policy_is_one_entry(monkeypatch):
    layer_norm = norms.NormPolicy(lambda channels: nn.GroupNorm(1, channels), None, False)
    monkeypatch.setitem(norms.POLICIES, "layer", layer_norm)
    backbone = resnet("layer")
    assert backbone.norm == "layer"
    assert isinstance(backbone.module.stem[1], nn.GroupNorm)
    assert not backbone.has_statistics
