"""Frozen networks that every task shares: by name, or adapted from any module."""

from impresslearn.networks.backbone import Backbone, Mode
from impresslearn.networks.registry import (
    adapt,
    create_backbone,
    list_backbones,
    register_backbone,
)

__all__ = [
    "Backbone",
    "Mode",
    "adapt",
    "create_backbone",
    "list_backbones",
    "register_backbone",
]
