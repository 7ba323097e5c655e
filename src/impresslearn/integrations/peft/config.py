"""The settings of an adapter of PEFT, and PEFT's word for the method."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from peft import PeftConfig
from peft.utils import PeftType

from impresslearn.checks import check_choice, check_integer, clear_calls
from impresslearn.errors import InputError
from impresslearn.masks.sources import MASK_LIMIT

NAME = "impress"
Granularity = Literal["layer", "unit"]
Precision = Literal["float32", "coded"]


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


@clear_calls
@dataclass
class ImpressConfig(PeftConfig):
    """Settings of a mixture of masks over frozen weights, W + W ⊙ Σ_t α_t M^t, every α 0 at first.

    - num_masks: N, the number of masks that a layer's weights are divided among; each weight is in
      exactly one.
    - granularity: "layer" for one coefficient per mask, "unit" for one per mask and output unit.
    - seed: with the layer's name, what masks are drawn from. Adapters of one seed and number share
      masks, and none are saved.
    - target_modules: names, or one regular expression, of linear layers and convolutions (GPT-2's
      `Conv1D` too) to adapt; "all-linear"; or None for the layers that PEFT's LoRA takes.
    - exclude_modules, layers_to_transform, layers_pattern: as in PEFT's other methods.
    - modules_to_save: modules that are trained and saved whole, such as a head.
    - precision: "float32", or "coded": coefficients are rounded to integers from -7 to 7 times a
      step per layer, in training too, and `save_pretrained` writes their entropy code. It rounds
      parameters of `modules_to_save` to integers up to 127. `PeftModel` loads such a file.
    - masks_digest: SHA-256 of the masks of a saved adapter, which loading compares; None for a new
      one.

    Raises InputError for settings that cannot be used.
    """

    num_masks: int = 16
    granularity: Granularity = "layer"
    seed: int = 0
    target_modules: list[str] | str | None = None
    exclude_modules: list[str] | str | None = None
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[str] | str | None = None
    modules_to_save: list[str] | None = None
    precision: Precision = "float32"
    masks_digest: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        # Saved with the adapter; PEFT chooses the tuner by it when it loads one.
        self.peft_type = IMPRESS
        self.num_masks = check_integer("num_masks", self.num_masks, 1, MASK_LIMIT)
        self.seed = check_integer("seed", self.seed, 0)
        check_choice("granularity", self.granularity, get_args(Granularity))
        check_choice("precision", self.precision, get_args(Precision))
        if self.layers_pattern and self.layers_to_transform is None:
            raise InputError("layers_pattern says where the numbers of layers_to_transform stand")
