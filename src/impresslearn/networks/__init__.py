"""Frozen networks that every task shares: by name, or adapted from any module."""

from impresslearn.networks.backbone import Backbone as Backbone
from impresslearn.networks.backbone import Mode as Mode
from impresslearn.networks.block_features import BlockFeatures as BlockFeatures
from impresslearn.networks.registry import adapt as adapt
from impresslearn.networks.registry import create_backbone as create_backbone
from impresslearn.networks.registry import list_backbones as list_backbones
from impresslearn.networks.registry import register_backbone as register_backbone
