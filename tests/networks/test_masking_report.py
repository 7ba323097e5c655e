"""Every parameter of a network is in the report, masked or with the reason why not."""

import pytest
import torch
from torch import nn

import impresslearn as il
from models import Columns, Depthwise, Patches, Tied
from toys import ConvNet, refused


def reasons(report):
    """Layer or parameter -> what the report says about it."""
    rows = [line.split(maxsplit=2) for line in report.splitlines()[:-1]]
    return {name: reason for name, _, reason in rows}


@pytest.mark.parametrize("make", [Patches, Depthwise, Columns, Tied, ConvNet])
def test_every_parameter_is_there_once(make):
    backbone = il.adapt(make(), head="shared" if make is Tied else "own")
    report = il.masking_report(backbone)
    names = [name for name, reason in reasons(report).items() if reason == "masked"]
    assert names == [layer.name for layer in backbone.layers]
    thirds = [layer for layer in backbone.layers if layer.part in ("q", "k")]
    parameters = list(backbone.module.parameters())
    assert len(report.splitlines()) == len(parameters) + len(thirds) + 1
    total = f"{backbone.num_maskable:,} of {backbone.num_parameters:,} numbers masked"
    assert total in report.splitlines()[-1]


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
    assert left["packed.in_proj_weight.q"] == "masked"
    tied = reasons(il.masking_report(Tied(), head="shared"))
    assert tied["tokens.weight"] == "embedding, or tied to one, and not included"
    tied = reasons(il.masking_report(Tied(), head="shared", include=["out.weight"]))
    assert tied["tokens.weight"] == "masked"
    left = reasons(il.masking_report(il.adapt(Patches(), skip=["*.in_proj_weight.k"])))
    assert left["head.weight"] == left["head.bias"] == "replaced by the task's own head"
    assert left["block.self_attn.in_proj_weight.k"] == "left out by include or skip"
    assert left["block.self_attn.in_proj_weight.q"] == "masked"


def test_only_networks_have_a_report():
    refused("takes an nn.Module, got int", il.masking_report, 3)
    refused("has no maskable layer", il.masking_report, nn.ReLU())
    refused("closest are head.weight", il.masking_report, Patches(), skip=["hed.weight"])
