"""A network of one's own, registered by name."""

import pytest
from torch import nn

from impresslearn.networks import create_backbone, register_backbone, registry


@pytest.fixture
def names(monkeypatch):
    """A registry that forgets afterwards what a test adds."""
    monkeypatch.setattr(registry, "_builders", dict(registry._builders))


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
