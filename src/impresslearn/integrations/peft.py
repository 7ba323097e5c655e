"""A tuner for PEFT: each adapter mixes masks over a trained network by a few coefficients.

Importing this module registers the method in PEFT under the name IMPRESS. Afterwards you can use,
save and load its adapters like any others of PEFT.

    from impresslearn.integrations.peft import ImpressConfig
    from peft import PeftModel, get_peft_model

    model = get_peft_model(model, ImpressConfig(num_masks=16, target_modules="all-linear"))
    ...                                       # train: a learning rate of about 0.02, by Adam
    model.save_pretrained("adapter")          # coefficients and settings; no masks
    model = PeftModel.from_pretrained(base, "adapter")
    model.load_adapter("another", "b")        # shares the masks, if its seed and number are equal
    model.set_adapter("b")

Raises MissingDependencyError if PEFT is not installed.
"""

import copy
import hashlib
import zlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call

from impresslearn.checks import check_choice, check_integer, clear_calls
from impresslearn.coefficients.coding import LARGEST, SMALLEST_STEP
from impresslearn.coefficients.quantisation import (
    Grid,
    TensorLayout,
    decode_tensors,
    encode_tensors,
)
from impresslearn.coefficients.quantized_parameters import rounded_steps
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.files import reason_of
from impresslearn.kernels import mix_layers
from impresslearn.masks import random_bank
from impresslearn.masks.sources import MASK_LIMIT
from impresslearn.networks.layers import MASKABLE, MaskableLayer, Part, units_in_columns
from impresslearn.streams.torchvision import import_extra

import_extra("peft", "PEFT")  # raises with a hint if it is missing

from peft import PeftConfig  # noqa: E402
from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING  # noqa: E402
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer, check_adapters_to_merge  # noqa: E402
from peft.utils import (  # noqa: E402
    TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING,
    PeftType,
    register_peft_method,
)

NAME = "impress"
LARGEST_INTEGER = 7  # the largest integer of coded coefficients
Granularity = Literal["layer", "unit"]
Precision = Literal["float32", "coded"]

# `register_peft_method` requires a member of PEFT's enumeration of methods.
if (member := NAME.upper()) not in PeftType.__members__:
    added: Any = str.__new__(PeftType, member)
    added._name_ = added._value_ = member
    setattr(PeftType, member, added)  # fails once the name is in the map
    PeftType._member_map_[member] = PeftType._value2member_map_[member] = added
    PeftType._member_names_.append(member)
IMPRESS: Any = PeftType(member)


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


class MaskKey(NamedTuple):
    """The settings that masks are drawn from, together with the layer's name."""

    num_masks: int
    seed: int


class ImpressLayer(nn.Module, BaseTunerLayer):
    """A linear layer or convolution with coefficients for each adapter.

    - base_layer: the layer to wrap; only `merge` changes its weights.
    - name: the layer's name in the network, from which its masks are drawn.
    """

    adapter_layer_names = ("impress_alpha",)
    other_param_names = ("impress_key", "impress_precision")

    def __init__(self, base_layer: nn.Module, name: str) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.impress_alpha = nn.ParameterDict()
        """Adapter -> (N,) or (N, units), float32."""
        self.impress_key: dict[str, MaskKey] = {}
        self.impress_precision: dict[str, str] = {}
        self._digests: dict[MaskKey, bytes] = {}
        # The original weight while adapters are merged. In a list it is not registered, so that the
        # state dict does not change.
        self._unmerged: list[Any] = []
        self._disable_adapters, self._active_adapter = False, []
        self.merged_adapters: list[str] = []
        self._layer = _maskable(base_layer, name)

    def update_layer(self, adapter_name: str, config: ImpressConfig) -> None:
        """Adds an adapter, which changes nothing until it is trained."""
        key = MaskKey(config.num_masks, config.seed)
        if key not in self._digests:
            bits, self._digests[key] = draw(self._layer, key)
            # A buffer is moved with the module; this one is not in the state dict.
            self.register_buffer(_buffer(key), bits, persistent=False)
        self.impress_key[adapter_name] = key
        self.impress_precision[adapter_name] = config.precision
        shape = [key.num_masks, *([self._layer.units] if config.granularity == "unit" else [])]
        alpha = torch.zeros(shape, dtype=torch.float32, device=self.weight.device)
        self.impress_alpha[adapter_name] = nn.Parameter(alpha)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def delete_adapter(self, adapter_name: str) -> None:
        """Deletes an adapter, and its masks if no other adapter uses them."""
        super().delete_adapter(adapter_name)
        for key in set(self._digests) - set(self.impress_key.values()):
            del self._digests[key]
            delattr(self, _buffer(key))

    def coefficients(self, adapter: str) -> Tensor:
        """The α of an adapter, rounded as in a saved file, differentiable."""
        alpha = self.impress_alpha[adapter]
        return alpha if self.impress_precision[adapter] != "coded" else rounded(alpha)[0]

    def get_delta_weight(self, adapter: str) -> Tensor:
        """The change W ⊙ Σ_t α_t M^t, in the weight's shape, differentiable in α."""
        weight = self._frozen
        name = _buffer(self.impress_key[adapter])
        bits = getattr(self, name).to(weight.device)
        setattr(self, name, bits)
        change = mix_layers([bits], [self.coefficients(adapter)], [self._layer.of(weight)])[0]
        return change.t() if self._layer.part == "transposed" else change

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Adds the changes of adapters (by default the active adapters) to the weights.

        With `safe_merge`, raises InputError if the weights would no longer be finite.
        """
        names = check_adapters_to_merge(self, adapter_names)
        names = [name for name in names if name in self.impress_alpha]
        if not names:
            return
        merged = self._with(self.merged_adapters + names).detach()
        if safe_merge and not torch.isfinite(merged).all():
            raise InputError(f"{self._layer.name} would become NaN or infinite; nothing is merged")
        weight = self.weight
        self._unmerged = self._unmerged or [weight]
        # A new parameter, because other layers may share the original one.
        self.get_base_layer().weight = nn.Parameter(merged, requires_grad=weight.requires_grad)
        self.merged_adapters += names

    def unmerge(self) -> None:
        """Restores the original weights, bit for bit and shared with the same layers as before."""
        for weight in self._unmerged:
            # The module may have been moved or converted since the weights were merged.
            weight.data = weight.data.to(self.weight.device, self.weight.dtype)
            self.get_base_layer().weight = weight
        self._unmerged, self.merged_adapters = [], []

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The layer's output with the active adapters."""
        names = [name for name in self.active_adapters if name in self.impress_alpha]
        if self.disable_adapters and self.merged:
            self.unmerge()
        if self.disable_adapters or self.merged or not names:
            return self.base_layer(x, *args, **kwargs)
        return functional_call(self.base_layer, {"weight": self._with(names)}, (x, *args), kwargs)

    def _with(self, names: Sequence[str]) -> Tensor:
        """The weight plus the changes of some adapters."""
        return self._frozen + sum(map(self.get_delta_weight, names))

    def _move_adapter_to_device_of_base_layer(
        self, adapter_name: str, device: torch.device | None = None
    ) -> None:
        """Moves an adapter; unlike in PEFT's method, coefficients stay float32."""
        if adapter_name not in self.impress_alpha:  # the adapter does not cover this layer
            return
        alpha = self.impress_alpha[adapter_name]
        if alpha.device.type != "meta":
            alpha.data = alpha.data.to(self.weight.device if device is None else device)

    @property
    def _frozen(self) -> Tensor:
        """The weight without adapters."""
        return self._unmerged[0].to(self.weight.device) if self._unmerged else self.weight


class ImpressLinear(ImpressLayer):
    """A linear layer with coefficients. "all-linear" finds it by "Linear" in the class name."""


def rounded(alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Coefficients rounded to 2 LARGEST_INTEGER + 1 levels (straight-through), and the step."""
    step = rounded_steps(alpha.detach().abs().amax() / LARGEST_INTEGER)
    near = step * (alpha.detach() / step.clamp(min=SMALLEST_STEP)).round()
    return alpha + (near - alpha.detach()), step


def draw(layer: MaskableLayer, key: MaskKey) -> tuple[Tensor, bytes]:
    """Disjoint masks of a layer, (N, units, row_bytes) uint8 on the CPU, and their SHA-256."""
    # Masks depend on the layer's name, so adapters with the same seed share them.
    words = f"{key.seed}:{layer.name}".encode()
    seed = int.from_bytes(hashlib.sha256(words).digest()[:8], "little")
    bank = random_bank([layer], key.num_masks, seed=seed, source="disjoint")
    bits = bank.bits(0).clone()  # a copy without the bank's spare memory
    return bits, hashlib.sha256(bits.numpy().tobytes()).digest()


def _buffer(key: MaskKey) -> str:
    return f"impress_bits_{key.num_masks}_{key.seed}"


def _maskable(module: nn.Module, name: str) -> MaskableLayer:
    if isinstance(module, BaseTunerLayer):
        raise InputError(f"{name} has adapters of another kind; call unload() on the model first")
    part: Part = "transposed" if units_in_columns(module) else ""
    if not (part or isinstance(module, MASKABLE)):
        raise InputError(
            f"target_modules takes in {name}, a {type(module).__name__}; masks cover linear layers "
            "and convolutions, name only these"
        )
    weight = module.weight
    if not (isinstance(weight, Tensor) and weight.is_floating_point()):
        line = f"the weights of {name} are quantised; masks need floating-point weights"
        raise InputError(f"{line}, load the model without quantisation")
    shape = tuple(weight.t().shape if part else weight.shape)
    return MaskableLayer(f"{name}.weight", shape, part)


class ImpressModel(BaseTuner):
    """A network whose target layers are wrapped in `ImpressLayer`; PEFT makes it.

    If an adapter cannot be added, the network is not changed.
    """

    prefix = f"{NAME}_"
    tuner_layer_cls = ImpressLayer
    target_module_mapping: Any = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

    def inject_adapter(
        self, model: nn.Module, adapter_name: str, *args: Any, **kwargs: Any
    ) -> None:
        """Adds an adapter.

        Raises InputError if no layer matches, if a layer cannot be masked, and if the masks differ
        from the saved adapter's masks.
        """
        # Copy the settings: the masks' digest is written into them, and the caller may reuse them.
        self.peft_config[adapter_name] = copy.copy(self.peft_config[adapter_name])
        try:
            super().inject_adapter(model, adapter_name, *args, **kwargs)
            self._check_masks(adapter_name)
        except Exception as error:
            for name, layer in _layers(self.model, adapter_name).items():
                layer.delete_adapter(adapter_name)
                if not layer.impress_alpha:  # no other adapter is left
                    parent, _, last = name.rpartition(".")
                    setattr(self.model.get_submodule(parent), last, layer.get_base_layer())
            if isinstance(error, ValueError) and not isinstance(error, ImpressLearnError):
                names = [name for name, part in model.named_modules() if isinstance(part, MASKABLE)]
                line = f"PEFT: {reason_of(error).rstrip('.')}; target_modules may be {names[:8]}"
                raise InputError(line) from error
            raise

    def _create_and_replace(
        self,
        peft_config: Any,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
        parameter_name: str | None = None,
    ) -> None:
        if isinstance(target, ImpressLayer):
            target.update_layer(adapter_name, peft_config)
            return
        # torch.compile adds this prefix; masks are drawn from the name without it.
        name = current_key.removeprefix("_orig_mod.")
        linear = isinstance(target, nn.Linear) or units_in_columns(target)
        layer = (ImpressLinear if linear else ImpressLayer)(target, name)
        layer.set_adapter(self.active_adapters)
        layer.update_layer(adapter_name, peft_config)
        self._replace_module(parent, target_name, layer, target)

    def _enable_peft_forward_hooks(self, *args: Any, **kwargs: Any) -> AbstractContextManager:
        """Raises InputError for mixed batches: PEFT would silently ignore their adapter_names."""
        if kwargs.get("adapter_names") is not None:
            raise InputError("a batch must be of one adapter; call set_adapter() and predict each")
        return nullcontext()

    def _check_masks(self, adapter_name: str) -> None:
        """Writes the masks' digest into the settings, or compares it with the digest there."""
        total = hashlib.sha256()
        for name, layer in sorted(_layers(self.model, adapter_name).items()):
            total.update(name.removeprefix("_orig_mod.").encode() + b"\0")
            total.update(layer._digests[layer.impress_key[adapter_name]])
        config: Any = self.peft_config[adapter_name]
        if config.masks_digest not in (None, total.hexdigest()):
            raise InputError(
                f"the masks that seed {config.seed} draws for this network are not those that the "
                f"adapter {adapter_name!r} was made with; load it on the network it was made for "
                "(for a new adapter set masks_digest=None)"
            )
        config.masks_digest = total.hexdigest()

    @classmethod
    def _get_adapter_state_dict(
        cls,
        model: nn.Module,
        config: Any,
        adapter_name: str,
        state_dict: dict[str, Tensor],
        unwanted_adapter_names: list[str],
    ) -> dict[str, Tensor]:
        """The tensors that a file keeps of an adapter; if it is coded, codes instead of floats."""
        kept = super()._get_adapter_state_dict(
            model, config, adapter_name, state_dict, unwanted_adapter_names
        )
        if config.precision != "coded":
            return kept
        keys = [key for key in kept if key.endswith(f"impress_alpha.{adapter_name}")]
        tensors, grids = [], []
        for key in keys:
            values, step = rounded(kept.pop(key))
            tensors.append(values)
            grids.append(Grid(float(step), 0.0))
        content = encode_tensors(tensors, _layouts(tensors), "coded", grids)
        # One code for all layers, under the name of the first layer.
        kept[keys[0]] = _with_checksum(content, tensors, config.masks_digest)
        place = f".modules_to_save.{adapter_name}."
        for key, parameter in model.named_parameters():
            if place in key and parameter.is_floating_point():
                given = [state_dict[key]]
                content = encode_tensors(given, _layouts(given), "coded", largest=LARGEST)
                state_dict[key] = _with_checksum(content, given)  # PEFT takes it from here
        return kept

    @classmethod
    def _remap_adapter_state_dict_for_load(
        cls, model: nn.Module, config: Any, adapter_name: str, state_dict: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Decodes the codes of a file to floats, whatever the adapter's precision is."""
        state_dict, alphas = dict(state_dict), {}
        for name, layer in _layers(model, adapter_name).items():
            alphas[f"{name}.impress_alpha"] = layer.impress_alpha[adapter_name]
        parameters = dict(model.named_parameters())
        place, first = f".modules_to_save.{adapter_name}.", next(iter(alphas), "")
        for key, code in list(state_dict.items()):
            if code.dtype != torch.uint8:
                continue
            if key.endswith(first) and key.endswith(".impress_alpha"):
                # If the network is not wrapped by PEFT, names have no prefix.
                prefix = key.removesuffix(first)
                decoded = _decoded(code, alphas.values(), config.masks_digest)
                for name, tensor in zip(alphas, decoded, strict=True):
                    state_dict[prefix + name] = tensor
            elif key in parameters and place in key:
                like = parameters[key]
                state_dict[key] = _decoded(code, [like])[0].to(like.dtype)
            elif place not in key:  # else it is a buffer of bytes
                raise InputError(f"the saved adapter covers other layers than {adapter_name!r}")
        return super()._remap_adapter_state_dict_for_load(model, config, adapter_name, state_dict)


def _layers(model: nn.Module, adapter_name: str) -> dict[str, ImpressLayer]:
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, ImpressLayer) and adapter_name in module.impress_alpha
    }


def _with_checksum(content: bytes, like: Iterable[Tensor], masks: str | None = None) -> Tensor:
    """A code as bytes, after 4 bytes of a checksum over it, the shapes and the masks' digest."""
    about = str([tuple(tensor.shape) for tensor in like]) + (masks or "")
    checksum = zlib.crc32(content + about.encode())
    return torch.tensor(list(checksum.to_bytes(4, "little") + content), dtype=torch.uint8)


def _decoded(code: Tensor, wanted: Iterable[Tensor], masks: str | None = None) -> list[Tensor]:
    """Decodes tensors, in the shapes of the tensors `wanted`."""
    wanted, content = list(wanted), bytes(code.cpu().tolist())[4:]
    if not torch.equal(_with_checksum(content, wanted, masks), code.cpu()):
        line = "the saved adapter is damaged, or was made with other masks, seed or granularity"
        raise InputError(line)
    try:
        return decode_tensors(content, _layouts(wanted), "coded")[0]
    except ValueError as error:
        raise InputError(f"the saved adapter cannot be read: {error}") from None


def _layouts(tensors: Sequence[Tensor]) -> list[TensorLayout]:
    return [TensorLayout("", tuple(value.shape)) for value in tensors]


# PEFT rejects a method that it already knows, for example when this module is imported again.
if IMPRESS not in PEFT_TYPE_TO_TUNER_MAPPING:
    register_peft_method(name=NAME, config_cls=ImpressConfig, model_cls=ImpressModel)
