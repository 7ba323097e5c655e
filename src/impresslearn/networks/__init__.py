"""Frozen networks that every task shares: by name, or adapted from any module."""

from impresslearn.networks.backbone import Backbone, Mode
from impresslearn.networks.masking_report import MaskingReport, masking_report
from impresslearn.networks.norms import NormPolicy, list_norms, register_norm
from impresslearn.networks.registry import (
    adapt,
    count_parameters,
    create_backbone,
    list_backbones,
    register_backbone,
)

__all__ = [
    "Backbone",
    "MaskingReport",
    "Mode",
    "NormPolicy",
    "adapt",
    "count_parameters",
    "create_backbone",
    "list_backbones",
    "list_norms",
    "masking_report",
    "register_backbone",
    "register_norm",
]
