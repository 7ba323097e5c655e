"""What PEFT calls to put adapters on a network, and the registration of the method."""

from __future__ import annotations

import copy
import hashlib
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING
from peft.tuners.tuners_utils import BaseTuner
from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, register_peft_method
from torch import Tensor, nn

from impresslearn.coefficients.coding import LARGEST
from impresslearn.coefficients.quantisation import (
    Grid,
    TensorLayout,
    decode_tensors,
    encode_tensors,
)
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.files import reason_of
from impresslearn.integrations.peft.config import IMPRESS, NAME, ImpressConfig
from impresslearn.integrations.peft.layer import ImpressLayer, ImpressLinear
from impresslearn.networks.layers import units_in_columns


class ImpressModel(BaseTuner):
    """A network whose target layers are wrapped in `ImpressLayer`; PEFT makes it.

    Where an adapter cannot be added the network is left as it was.
    """

    prefix = f"{NAME}_"
    tuner_layer_cls = ImpressLayer
    target_module_mapping: Any = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_state_dict_post_hook(_encode_adapters)
        self.register_load_state_dict_pre_hook(_decode_adapters)

    def inject_adapter(
        self, model: nn.Module, adapter_name: str, *args: Any, **kwargs: Any
    ) -> None:
        """Adds an adapter.

        Raises InputError if no layer matches, for layers that cannot be masked, and if the masks
        differ from the saved adapter's.
        """
        # The digest of the masks is written into the configuration, which the caller may reuse.
        self.peft_config[adapter_name] = copy.copy(self.peft_config[adapter_name])
        try:
            super().inject_adapter(model, adapter_name, *args, **kwargs)
            self._check_masks(adapter_name)
        except Exception as error:
            self._take_off(adapter_name)
            if isinstance(error, ValueError) and not isinstance(error, ImpressLearnError):
                raise InputError(f"PEFT: {reason_of(error)}") from error
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
        # torch.compile puts this before names, and the masks are drawn from the name.
        name = current_key.removeprefix("_orig_mod.")
        linear = isinstance(target, nn.Linear) or units_in_columns(target)
        layer = (ImpressLinear if linear else ImpressLayer)(target, name)
        layer.set_adapter(self.active_adapters)
        layer.update_layer(adapter_name, peft_config)
        self._replace_module(parent, target_name, layer, target)

    def _enable_peft_forward_hooks(self, *args: Any, **kwargs: Any) -> AbstractContextManager:
        """Refuses mixed batches, whose adapter_names PEFT would silently drop."""
        if kwargs.get("adapter_names") is not None:
            raise InputError("a batch must be of one adapter; call set_adapter() and predict each")
        return nullcontext()

    def _layers(self, adapter_name: str) -> list[tuple[str, ImpressLayer]]:
        layers = []
        for name, module in self.model.named_modules():
            if isinstance(module, ImpressLayer) and adapter_name in module.impress_alpha:
                layers.append((name, module))
        return layers

    def _check_masks(self, adapter_name: str) -> None:
        """Writes the digest of the masks into the settings, or compares it with theirs."""
        total = hashlib.sha256()
        for name, layer in sorted(self._layers(adapter_name)):
            total.update(name.removeprefix("_orig_mod.").encode() + b"\0")
            total.update(layer.digest(adapter_name))
        config: Any = self.peft_config[adapter_name]
        if config.masks_digest not in (None, total.hexdigest()):
            raise InputError(
                f"the masks that seed {config.seed} draws for this network are not those that the "
                f"adapter {adapter_name!r} was made with; load it on the network it was made for "
                "(for a new adapter set masks_digest=None)"
            )
        config.masks_digest = total.hexdigest()

    def alphas(self, adapter_name: str) -> dict[str, ImpressLayer]:
        """Key in the state dict -> layer, of the layers that a coded adapter covers."""
        layers = {}
        for name, layer in self._layers(adapter_name):
            if layer.impress_precision[adapter_name] == "coded":
                layers[f"model.{name}.impress_alpha.{adapter_name}"] = layer
        return layers

    def saved_parameters(self, adapter_name: str) -> dict[str, nn.Parameter]:
        """Key in the state dict -> parameter, of an adapter's `modules_to_save`."""
        place = f".modules_to_save.{adapter_name}."
        return {name: value for name, value in self.named_parameters() if place in name}

    def _take_off(self, adapter_name: str) -> None:
        """Removes a half-added adapter; layers without any other adapter are unwrapped."""
        for name, layer in self._layers(adapter_name):
            layer.delete_adapter(adapter_name)
            if not layer.impress_alpha:
                parent, _, last = name.rpartition(".")
                setattr(self.model.get_submodule(parent), last, layer.get_base_layer())


def _encode_adapters(model: ImpressModel, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Replaces coefficients by one code under the first layer's name, and heads by their codes."""
    for adapter in model.peft_config:
        layers = model.alphas(adapter)
        if not layers or any(layer.impress_alpha[adapter].is_meta for layer in layers.values()):
            continue
        tensors, layouts, grids = [], [], []
        for key, layer in layers.items():
            values, step = layer.coefficients(adapter)
            tensors.append(values)
            layouts.append(TensorLayout(key, tuple(values.shape)))
            grids.append(Grid(0.0 if step is None else float(step), 0.0))
            del state[prefix + key]
        content = encode_tensors(tensors, layouts, "coded", grids)
        state[prefix + next(iter(layers))] = _as_tensor(content)
        for key, parameter in model.saved_parameters(adapter).items():
            layout = TensorLayout(key, tuple(parameter.shape))
            content = encode_tensors([parameter], [layout], "coded", largest=LARGEST)
            state[prefix + key] = _as_tensor(content)


def _decode_adapters(model: ImpressModel, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Makes floats of what `_encode_adapters` wrote; other values stay as they are."""
    for adapter in model.peft_config:
        alphas = {key: layer.impress_alpha[adapter] for key, layer in model.alphas(adapter).items()}
        saved = [{key: value} for key, value in model.saved_parameters(adapter).items()]
        for part in [alphas, *saved] if alphas else []:
            code = state.get(prefix + next(iter(part)))
            if code is None or code.dtype != torch.uint8:
                continue
            layouts = [TensorLayout(key, tuple(value.shape)) for key, value in part.items()]
            try:
                content = code.cpu().numpy().tobytes()
                decoded = decode_tensors(content, layouts, "coded")[0]
            except ValueError as error:
                raise InputError(f"the adapter {adapter!r} cannot be read: {error}") from None
            state.update(zip([prefix + key for key in part], decoded, strict=True))


def _as_tensor(content: bytes) -> Tensor:
    return torch.tensor(list(content), dtype=torch.uint8)


# PEFT refuses a method that it knows already, as when this module is imported anew.
if IMPRESS not in PEFT_TYPE_TO_TUNER_MAPPING:
    register_peft_method(name=NAME, config_cls=ImpressConfig, model_cls=ImpressModel)
