"""Frozen networks that every task shares: by name, or adapted from any module."""

from impresslearn.networks.backbone import Backbone, Mode
from impresslearn.networks.masking_report import masking_report
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
    "masking_report",
    "register_backbone",
]
