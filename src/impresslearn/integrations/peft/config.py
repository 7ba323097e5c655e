"""`ImpressConfig`, the settings of an adapter, and the method's member of `PeftType`."""

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
    """Adds a member to PEFT's enumeration of methods, which `register_peft_method` requires."""
    if name not in PeftType.__members__:
        added: Any = str.__new__(PeftType, name)
        added._name_ = added._value_ = name
        setattr(PeftType, name, added)  # fails once the name is in the map
        PeftType._member_map_[name] = PeftType._value2member_map_[name] = added
        PeftType._member_names_.append(name)
    return PeftType(name)


IMPRESS = _member(NAME.upper())


@clear_calls
@dataclass
class ImpressConfig(PeftConfig):
    """Settings of an adapter: W + W ⊙ Σ_t α_t M^t, with masks M^t and coefficients α, 0 at first.

    - num_masks: N, the number of masks. They divide a layer's weights: each weight is in exactly
      one mask.
    - granularity: "layer" for one coefficient per mask, "unit" for one per mask and output unit.
    - seed: masks are drawn from it and the layer's name, and are never saved. Adapters with equal
      seed and num_masks share masks.
    - target_modules: the linear layers and convolutions (also GPT-2's `Conv1D`) to adapt: names or
      one regular expression, "all-linear", or None for the layers that PEFT's LoRA adapts.
    - exclude_modules, layers_to_transform, layers_pattern: as in PEFT's other methods.
    - modules_to_save: modules that are trained and saved whole, such as a head.
    - precision: "float32", or "coded": coefficients are integers from -7 to 7, multiplied by a step
      per layer, also in training. `save_pretrained` writes their code, and rounds parameters of
      `modules_to_save` to integers up to 127. `PeftModel` loads such a file.
    - masks_digest: SHA-256 of a saved adapter's masks, compared when it is loaded; None for a new
      adapter.

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
        # It is saved with the adapter, and decides which tuner PEFT loads.
        self.peft_type = IMPRESS
        self.num_masks = check_integer("num_masks", self.num_masks, 1, MASK_LIMIT)
        self.seed = check_integer("seed", self.seed, 0)
        check_choice("granularity", self.granularity, get_args(Granularity))
        check_choice("precision", self.precision, get_args(Precision))
        if self.layers_pattern and self.layers_to_transform is None:
            raise InputError("layers_pattern says where the numbers of layers_to_transform stand")
