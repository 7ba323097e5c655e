"""Every parameter of a network is in the report, masked or with the reason why not."""

import pytest
import torch
from torch import nn

import impresslearn as il
from models import Columns, Depthwise, Patches, Tied
from toys import ConvNet, refused


def reasons(report):
    return {name: reason for name, _, _, reason in report.rows if reason}


@pytest.mark.parametrize("make", [Patches, Depthwise, Columns, Tied, ConvNet])
def test_every_parameter_is_there_once(make):
    module, head = make(), "shared" if make is Tied else "own"
    report = il.masking_report(module, head=head)
    total = sum(parameter.numel() for parameter in module.parameters())
    masked = il.adapt(module, head=head).num_maskable
    assert sum(numbers for _, _, numbers, _ in report.rows) == total
    assert sum(numbers for _, _, numbers, reason in report.rows if not reason) == masked
    assert f"{masked:,} of {total:,} numbers masked" in str(report)
    assert all(name in str(report) for name, *_ in report.rows)


class Others(nn.Module):
    """One of everything that masks leave."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.norm = nn.GroupNorm(1, 2)
        self.packed = nn.MultiheadAttention(4, 2)
        self.computed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        self.head = nn.Linear(2, 2)


def test_what_is_left_has_a_reason():
    left = reasons(il.masking_report(Others(), head="shared"))
    assert left["scale"] == "parameter of Others"
    assert left["packed.in_proj_bias"] == left["head.bias"] == "bias"
    assert left["norm.weight"] == left["norm.bias"] == "norm"
    assert left["computed.parametrizations.weight.original0"] == "computed weight"
    assert not [name for name in left if name.startswith("packed.in_proj_weight")]
    tied = reasons(il.masking_report(Tied(), head="shared"))
    assert tied["tokens.weight"] == "embedding, or tied to one, and not included"
    assert "tokens.weight" not in reasons(
        il.masking_report(Tied(), head="shared", include=["out.weight"])
    )
    left = reasons(il.masking_report(il.adapt(Patches(), skip=["*.in_proj_weight.k"])))
    assert left["head.weight"] == left["head.bias"] == "replaced by the task's own head"
    assert left["block.self_attn.in_proj_weight.k"] == "left out by include or skip"
    assert "block.self_attn.in_proj_weight.q" not in left


def test_only_networks_have_a_report():
    refused("takes an nn.Module, got int", il.masking_report, 3)
    refused("has no maskable layer", il.masking_report, nn.ReLU())
    refused("closest are head.weight", il.masking_report, Patches(), skip=["hed.weight"])
