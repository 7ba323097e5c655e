"""The settings of an adapter of PEFT, and PEFT's word for the method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from peft import PeftConfig
from peft.utils import PeftType

from impresslearn.checks import check_choice, check_integer
from impresslearn.errors import InputError
from impresslearn.masks.sources import MASK_LIMIT

NAME = "impress"
Granularity = Literal["layer", "unit"]


def _member(name: str) -> Any:
    """PEFT's enumeration of methods with one more member, which `register_peft_method` demands."""
    if name not in PeftType.__members__:
        added: Any = str.__new__(PeftType, name)
        added._name_ = added._value_ = name
        setattr(PeftType, name, added)  # refused once the name is in the map
        PeftType._member_map_[name] = PeftType._value2member_map_[name] = added
        PeftType._member_names_.append(name)
    return PeftType(name)


IMPRESS = _member(NAME.upper())


@dataclass
class ImpressConfig(PeftConfig):
    """Settings of a mixture of masks over frozen weights: W + W ⊙ Σ_t α_t M^t, every α 0 at first.

    num_masks: N, how many masks share a layer's weights out among themselves (each weight lies in
    exactly one). granularity: a coefficient a mask and "layer", N numbers, or a mask and output
    "unit". seed: what masks are drawn from, with the name of the layer: adapters of one seed and
    number share them, and none are saved. masks_digest: SHA-256 of the masks of an adapter that was
    made or saved; loading refuses others. None for a new adapter.

    target_modules: names, or one regular expression, of the linear layers and convolutions (GPT-2's
    `Conv1D` too) to adapt, "all-linear", or None for those that PEFT's LoRA takes in this
    architecture. exclude_modules, layers_to_transform, layers_pattern, modules_to_save: as in
    PEFT's other methods; of the last the weights are trained and saved whole. Raises InputError
    for settings that cannot be used.
    """

    num_masks: int = 16
    granularity: Granularity = "layer"
    seed: int = 0
    target_modules: list[str] | str | None = None
    exclude_modules: list[str] | str | None = None
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[str] | str | None = None
    modules_to_save: list[str] | None = None
    masks_digest: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = IMPRESS
        self.num_masks = check_integer("num_masks", self.num_masks, 1, MASK_LIMIT)
        self.seed = check_integer("seed", self.seed, 0)
        check_choice("granularity", self.granularity, get_args(Granularity))
        if self.layers_pattern and self.layers_to_transform is None:
            raise InputError("layers_pattern says where the numbers of layers_to_transform stand")
