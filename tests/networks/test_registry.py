"""Networks by name: what a spec holds, what is refused, and networks of one's own."""

import json

import pytest
import torch
from torch import nn

from impresslearn.errors import InputError
from impresslearn.networks import create_backbone, list_backbones, register_backbone, registry
from toys import refused


@pytest.fixture
def names(monkeypatch):
    """A registry that forgets afterwards what a test adds."""
    monkeypatch.setattr(registry, "_builders", dict(registry._builders))


def test_the_spec_survives_json_and_rebuilds_the_backbone():
    backbone = create_backbone("lenet_300_100", 4, seed=3, in_features=20, widths=(9, 5))
    assert backbone.spec == {
        "name": "lenet_300_100",
        "num_classes": 4,
        "seed": 3,
        "init": "signed_constant",
        "norm": "none",
        "gain": 2.0,
        "init_version": 2,
        "in_features": 20,
        "widths": [9, 5],
    }
    rebuilt = create_backbone(**json.loads(json.dumps(backbone.spec)))
    assert rebuilt.fingerprint() == backbone.fingerprint()
    assert create_backbone(**rebuilt.spec | {"seed": 4}).fingerprint() != backbone.fingerprint()
    assert rebuilt.spec == backbone.spec
    assert not backbone.pretrained
    defaults = create_backbone("resnet18", 2, width=4).spec
    assert (defaults["norm"], defaults["in_channels"]) == ("batch", 3)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("lenet_300_10", {}, r"no backbone 'lenet_300_10'; did you mean 'lenet_300_100'\?"),
        ("vgg", {}, "'vgg'; choose from lenet_300_100, linear, resnet18, resnet20, resnet50"),
        ("lenet_300_100", {"num_classes": 0}, "num_classes must be an integer of at least 1"),
        ("lenet_300_100", {"norm": "batch"}, "norm of lenet_300_100 must be none, got 'batch'"),
        ("lenet_300_100", {"widths": 300}, "widths must be a list"),
        ("lenet_300_100", {"widths": (300, -1)}, "widths must be .* got -1"),
        ("resnet18", {"norm": "none"}, "norm of resnet18 must be one of batch, per_task, shared"),
        ("resnet18", {"width": 0}, "width must be .* got 0"),
        ("resnet18", {"depth": 3}, "'depth'; choose from "),
        ("resnet18", {"width": {1}}, "settings of resnet18 must consist of JSON values"),
        ("resnet18", {"width": 4, "seed": -1}, "seed must be"),
        ("resnet18", {"width": 4, "init_version": 3}, "init_version must be an integer"),
    ],
)
def test_bad_arguments_are_one_line(name, settings, message):
    refused(message, create_backbone, name, **{"num_classes": 2, **settings})


@pytest.mark.usefixtures("names")
def test_a_backbone_of_ones_own():
    @register_backbone("tiny")
    def tiny(num_classes, *, width=3, **extra):
        module = nn.Sequential(nn.Linear(5, width), nn.Linear(width, num_classes))
        module.input_shape = (5,)
        return module

    assert "tiny" in list_backbones()
    backbone = create_backbone("tiny", 2, seed=4, dropped=1)
    assert backbone.spec["dropped"] == 1
    assert backbone.spec["width"] == 3
    assert backbone.input_shape == (5,)
    torch.rand(1)  # the biases, too, follow the seed and not the global state
    assert create_backbone(**backbone.spec).fingerprint() == backbone.fingerprint()
    with pytest.raises(InputError, match="'tiny' is registered already"):
        register_backbone("tiny")


@pytest.mark.usefixtures("names")
def test_batch_norms_of_ones_own_network_come_under_the_policy_asked_for():
    @register_backbone("tracking")
    def tracking(num_classes):
        return nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.Linear(6, num_classes))

    for norm, kept in ((None, 2), ("per_task", 2), ("shared", 2), ("batch", 0)):
        backbone = create_backbone("tracking", 3, norm=norm)
        assert backbone.norm == (norm or "per_task")
        assert len(backbone.initial_statistics()) == kept
        assert create_backbone(**backbone.spec).fingerprint() == backbone.fingerprint()
    for norm in ("none", "group"):
        with pytest.raises(InputError, match=r"batch norm cannot be brought under norm .* choose"):
            create_backbone("tracking", 3, norm=norm)

    @register_backbone("plain")
    def plain(num_classes):
        return nn.Sequential(nn.Linear(2, num_classes))

    assert create_backbone("plain", 3).norm == "none"
