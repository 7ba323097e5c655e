"""One layer of a network with the adapters that PEFT puts on it.

The layer runs as it is, with W + W ⊙ Σ_t α_t M^t in place of W. Adapters that are active together
add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer, check_adapters_to_merge
from torch import Tensor, nn
from torch.func import functional_call

from impresslearn.errors import InputError
from impresslearn.integrations.peft.config import ImpressConfig
from impresslearn.integrations.peft.masks import MaskKey, draw
from impresslearn.kernels import mix_layers
from impresslearn.networks.layers import MASKABLE, MaskableLayer, Part, units_in_columns

NO_ADAPTER = "__base__"
"""PEFT's name, in a mixed batch, for the network as it was."""


class ImpressLayer(nn.Module, BaseTunerLayer):
    """A linear layer or convolution with coefficients for each adapter.

    base_layer: what it wraps, whose weights are never changed but by `merge`; name: its name in the
    network, which its masks depend on. Raises InputError for a module of another kind, and for
    weights that are no floating-point numbers (quantised ones).
    """

    adapter_layer_names = ("impress_alpha",)
    other_param_names = ("impress_key",)

    def __init__(self, base_layer: nn.Module, name: str) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.impress_alpha = nn.ParameterDict()
        """Adapter -> (N,) or (N, units), float32."""
        self.impress_key: dict[str, MaskKey] = {}
        self._digests: dict[MaskKey, bytes] = {}
        # The own weight while adapters are merged; the module does not register what is in a list.
        self._unmerged: list[nn.Parameter] = []
        self._disable_adapters, self._active_adapter = False, []
        self.merged_adapters: list[str] = []
        self._layer = _maskable(base_layer, name)

    def update_layer(self, adapter_name: str, config: ImpressConfig) -> None:
        """Adds an adapter, which changes nothing as yet."""
        key = MaskKey(config.num_masks, config.seed)
        device = self._weight.device
        if key not in self._digests:
            bits, self._digests[key] = draw(self._layer, key)
            # A buffer goes where the module goes, and this one into no state dict.
            self.register_buffer(_buffer(key), bits, persistent=False)
        self.impress_key[adapter_name] = key
        shape = [key.num_masks, *([self._layer.units] if config.granularity == "unit" else [])]
        self.impress_alpha[adapter_name] = nn.Parameter(torch.zeros(shape, device=device))
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def delete_adapter(self, adapter_name: str) -> None:
        """Forgets an adapter, and masks that no other one has."""
        super().delete_adapter(adapter_name)
        for key in set(self._digests) - set(self.impress_key.values()):
            del self._digests[key]
            delattr(self, _buffer(key))

    def digest(self, adapter_name: str) -> bytes:
        """SHA-256 of the masks of an adapter."""
        return self._digests[self.impress_key[adapter_name]]

    def get_delta_weight(self, adapter: str) -> Tensor:
        """W ⊙ Σ_t α_t M^t, as the weight is laid out, differentiable in α."""
        weight = self._frozen
        bits, frozen = self._bits(self.impress_key[adapter], weight.device), self._layer.of(weight)
        change = mix_layers([bits], [self.impress_alpha[adapter]], [frozen])[0]
        return change.t() if self._layer.part == "transposed" else change

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Puts adapters, the active ones by default, into the weights.

        The layer gets a parameter of its own: others may share the one it had, and keep that.
        Raises InputError, if `safe_merge`, where the weights would no longer be finite.
        """
        names = self._of_mine(check_adapters_to_merge(self, adapter_names))
        if not names:
            return
        merged = self._with(self.merged_adapters + names).detach()
        if safe_merge and not torch.isfinite(merged).all():
            raise InputError(f"{self._layer.name} would become NaN or infinite; nothing is merged")
        own = self._weight
        self._unmerged = self._unmerged or [own]
        self.get_base_layer().weight = nn.Parameter(merged, requires_grad=own.requires_grad)
        self.merged_adapters += names

    def unmerge(self) -> None:
        """Puts the network's own weights back, bit for bit, shared with whom they were."""
        for own in self._unmerged:
            own.data = own.data.to(self._weight.device, self._weight.dtype)  # moved meanwhile
            self.get_base_layer().weight = own
        self._unmerged, self.merged_adapters = [], []

    def forward(
        self, x: Tensor, *args: Any, adapter_names: Sequence[str] | None = None, **kwargs: Any
    ) -> Tensor:
        """The layer's output; adapter_names: one for each example of the batch."""
        if self.disable_adapters:
            if self.merged:
                self.unmerge()
            return self.base_layer(x, *args, **kwargs)
        if adapter_names is not None:
            return self._mixed_batch(x, args, kwargs, adapter_names)
        names = [] if self.merged else self._of_mine(self.active_adapters)
        return self._run(names, x, args, kwargs)

    def _run(self, names: Sequence[str], x: Tensor, args: tuple, kwargs: dict[str, Any]) -> Tensor:
        if not names:
            return self.base_layer(x, *args, **kwargs)
        weights = {"weight": self._with(names)}
        return functional_call(self.base_layer, weights, (x, *args), kwargs)

    def _mixed_batch(
        self, x: Tensor, args: tuple, kwargs: dict[str, Any], adapter_names: Sequence[str]
    ) -> Tensor:
        if self.merged:
            raise InputError("adapter_names need weights without adapters; call unmerge_adapter()")
        if len(adapter_names) != len(x):
            raise InputError(
                f"adapter_names must name one adapter for each example, got {len(adapter_names)} "
                f"for {len(x)}"
            )
        rows = {
            name: torch.tensor([row for row, each in enumerate(adapter_names) if each == name])
            for name in dict.fromkeys(adapter_names)
        }
        parts = [
            self._run(self._of_mine([name]), x[chosen.to(x.device)], args, kwargs)
            for name, chosen in rows.items()
        ]
        order = torch.argsort(torch.cat(list(rows.values()))).to(x.device)
        return torch.cat(parts)[order]

    def _with(self, names: Sequence[str]) -> Tensor:
        """The weight with some adapters in it."""
        return self._frozen + sum(map(self.get_delta_weight, names))

    def _of_mine(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self.impress_alpha]

    def _bits(self, key: MaskKey, device: torch.device) -> Tensor:
        bits = getattr(self, _buffer(key))
        if bits.device != device:
            bits = bits.to(device)
            setattr(self, _buffer(key), bits)
        return bits

    def _move_adapter_to_device_of_base_layer(
        self, adapter_name: str, device: torch.device | None = None
    ) -> None:
        """Where PEFT would round coefficients to the weights' type, they stay float32."""
        alpha = self.impress_alpha[adapter_name]
        if alpha.device.type != "meta":
            alpha.data = alpha.data.to(self._weight.device if device is None else device)

    @property
    def _weight(self) -> Any:
        return self.get_base_layer().weight

    @property
    def _frozen(self) -> Tensor:
        """The weight without adapters."""
        return self._unmerged[0].to(self._weight.device) if self._unmerged else self._weight

    def __repr__(self) -> str:
        return f"impress.{super().__repr__()}"


class ImpressLinear(ImpressLayer):
    """A linear layer with coefficients; "all-linear" finds it again by the word in its name."""


def wrapped(module: nn.Module, name: str) -> ImpressLayer:
    """A layer, called `name` in its network, ready for adapters. Raises as `ImpressLayer`."""
    linear = isinstance(module, nn.Linear) or units_in_columns(module)
    return (ImpressLinear if linear else ImpressLayer)(module, name)


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
        raise InputError(
            f"the weights of {name} are quantised; masks need those of a floating-point type, "
            "load the model without quantisation"
        )
    shape = tuple(weight.t().shape if part else weight.shape)
    return MaskableLayer(f"{name}.weight", shape, part)
