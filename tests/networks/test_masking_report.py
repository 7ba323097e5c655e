"""Every parameter of a network is in the report, masked or with the reason why not."""

from functools import partial

import pytest
import torch
from torch import nn

import impresslearn as il
from models import Columns, Depthwise, Patches, Tied
from toys import ConvNet, lenet, refused


def reasons(report):
    return {row["name"]: row["reason"] for row in report.rows() if row["reason"]}


@pytest.mark.parametrize("make", [Patches, Depthwise, Columns, Tied, ConvNet])
def test_every_parameter_is_there_once(make):
    module, head = make(), "shared" if make is Tied else "own"
    report = il.masking_report(module, head=head)
    total = sum(parameter.numel() for parameter in module.parameters())
    assert sum(row["numbers"] for row in report.rows()) == total
    assert report.masked + sum(report.left.values()) == total
    assert report.masked == il.adapt(module, head=head).num_maskable
    assert f"{report.masked:,} of {total:,} numbers masked" in str(report)
    assert all(row["name"] in str(report) for row in report.rows())


class Others(nn.Module):
    """One of everything that masks leave."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.up = nn.ConvTranspose1d(2, 3, 1)
        self.recurrent = nn.GRU(3, 2)
        self.norm = nn.GroupNorm(1, 2)
        self.packed = nn.MultiheadAttention(4, 2)
        self.head = nn.Linear(2, 2)


def test_what_is_left_has_a_reason():
    found = reasons(il.masking_report(Others(), head="shared"))
    assert found["scale"] == "parameter of Others"
    assert found["up.weight"] == "transposed convolution"
    assert found["up.bias"] == found["packed.in_proj_bias"] == found["head.bias"] == "bias"
    assert found["recurrent.weight_hh_l0"] == "recurrent layer"
    assert found["norm.weight"] == found["norm.bias"] == "norm"
    assert not [name for name in found if name.startswith("packed.in_proj_weight")]


def test_embeddings_tied_and_computed_weights_and_what_was_skipped():
    tied = partial(il.masking_report, Tied(), head="shared")
    report = tied()
    (row,) = [row for row in report.rows() if row["name"] == "tokens.weight"]
    assert row["reason"].startswith("embedding")
    assert row["shared"] == ("out.weight",)
    assert "tokens.weight" not in reasons(tied(include=["tokens.weight"]))
    refused('computed; use head="shared"|shares its weights', il.masking_report, Tied())
    computed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    assert set(reasons(il.masking_report(computed, head="shared")).values()) == {
        "bias",
        "computed weight",
    }
    backbone = il.adapt(Patches(), skip=["*.in_proj_weight.k"])
    found = reasons(il.masking_report(backbone))
    assert found["head.weight"] == found["head.bias"] == "replaced by a head of every task's own"
    assert found["block.self_attn.in_proj_weight.k"] == "left out by include or skip"
    assert "block.self_attn.in_proj_weight.q" not in found


def test_only_networks_have_a_report():
    refused("takes an nn.Module or a Backbone, got int", il.masking_report, 3)
    for module in (nn.ReLU(), nn.Sequential(), nn.LayerNorm(3)):
        refused("has no maskable layer", il.masking_report, module)
    refused("for a module", il.masking_report, lenet(), skip=["0.weight"])
    refused("closest are head.weight", il.masking_report, Patches(), skip=["hed.weight"])
