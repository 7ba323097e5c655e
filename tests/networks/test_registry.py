"""Networks by name: what a spec holds, what is refused, and networks of one's own."""

import json

import pytest
from torch import nn

from impresslearn.networks import create_backbone, register_backbone, registry


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
