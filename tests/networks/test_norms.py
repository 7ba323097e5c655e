import pytest
import torch
from torch import nn

from impresslearn.errors import InputError
from impresslearn.networks import norms


@pytest.mark.parametrize(
    ("channels", "groups"), [(512, 32), (64, 16), (48, 12), (33, 3), (37, 1), (7, 1), (1, 1)]
)
def test_group_norm_takes_the_largest_divisor_that_leaves_four_channels(channels, groups):
    norm = norms.make_norm(channels, "group")
    assert norm.num_groups == groups
    assert not list(norm.parameters())


@pytest.mark.parametrize(("norm", "tracked"), [("batch", 0), ("per_task", 2), ("shared", 2)])
def test_batch_norms_have_no_weights_and_track_where_the_policy_keeps(norm, tracked):
    module = norms.make_norm(6, norm)
    assert isinstance(module, nn.BatchNorm2d)
    assert not list(module.parameters())
    assert len(norms.statistic_names(module)) == tracked


@pytest.mark.parametrize("norm", ["none", "layer", "Batch"])
def test_unknown_policies(norm):
    with pytest.raises(InputError, match=r"must be batch or .* or group, got"):
        norms.make_norm(4, norm)


def trained():
    module = nn.Sequential(
        nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3, momentum=None), nn.Sequential(nn.BatchNorm1d(3))
    )
    module(torch.randn(8, 2, 5) + 1)
    return module


def test_names_of_statistics():
    assert norms.statistic_names(trained()) == (
        "1.running_mean",
        "1.running_var",
        "2.0.running_mean",
        "2.0.running_var",
    )
    assert norms.statistic_names(nn.BatchNorm1d(3)) == ("running_mean", "running_var")


def test_drop_counters_leaves_only_the_averages():
    module = trained()
    norms.drop_counters(module)
    assert tuple(name for name, _ in module.named_buffers()) == norms.statistic_names(module)
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


def test_trained_batch_norm_does_not_become_anything():
    with pytest.raises(InputError, match="adapt cannot turn trained batch norm into group norm"):
        norms.convert_batch_norms(trained(), "group")
    with pytest.raises(InputError, match="the module has batch norm"):
        norms.convert_batch_norms(trained(), "none")
    with pytest.raises(InputError, match="norm of a backbone must be"):
        norms.convert_batch_norms(nn.Linear(2, 2), "layer")
