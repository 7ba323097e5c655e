"""`ImpressLayer`: one layer of a network with the adapters that PEFT adds to it.

The layer computes as before, with W + W ⊙ Σ_t α_t M^t in place of W. If several adapters are
active, their changes are added.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from peft.tuners.tuners_utils import BaseTunerLayer, check_adapters_to_merge
from torch import Tensor, nn
from torch.func import functional_call

from impresslearn.coefficients.coding import SMALLEST_STEP
from impresslearn.coefficients.quantized_parameters import rounded_steps
from impresslearn.errors import InputError
from impresslearn.integrations.peft.config import ImpressConfig
from impresslearn.kernels import mix_layers
from impresslearn.masks import random_bank
from impresslearn.networks.layers import MASKABLE, MaskableLayer, Part, units_in_columns

LARGEST_INTEGER = 7  # the largest integer of coded coefficients


class MaskKey(NamedTuple):
    """The settings that masks are drawn from, together with the layer's name."""

    num_masks: int
    seed: int


class ImpressLayer(nn.Module, BaseTunerLayer):
    """A linear layer or convolution with coefficients for each adapter.

    - base_layer: the layer to wrap; only `merge` changes its weights.
    - name: the layer's name in the network, from which its masks are drawn.

    Raises InputError for other kinds of modules, and for quantised weights.
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

    def digest(self, adapter_name: str) -> bytes:
        """SHA-256 of the masks of an adapter."""
        return self._digests[self.impress_key[adapter_name]]

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
