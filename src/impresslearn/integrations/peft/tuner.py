"""`ImpressModel`, which PEFT calls to add adapters to a network, and its registration in PEFT."""

import copy
import hashlib
import zlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING
from peft.tuners.tuners_utils import BaseTuner
from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, register_peft_method
from torch import Tensor, nn

from impresslearn.coefficients import Grid, TensorLayout
from impresslearn.coefficients.coding import LARGEST
from impresslearn.coefficients.quantisation import decode_tensors, encode_tensors
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.files import reason_of
from impresslearn.integrations.peft.config import IMPRESS, NAME, ImpressConfig
from impresslearn.integrations.peft.layer import ImpressLayer, ImpressLinear, rounded
from impresslearn.networks.layers import MASKABLE, units_in_columns


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
            total.update(layer.digest(adapter_name))
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
                flat = [state_dict[key].detach().reshape(-1)]
                content = encode_tensors(flat, _layouts(flat), "coded", largest=LARGEST)
                state_dict[key] = _with_checksum(content, [parameter])  # PEFT takes it from here
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
        tensors, _ = decode_tensors(content, _layouts(wanted), "coded")
    except ValueError as error:
        raise InputError(f"the saved adapter cannot be read: {error}") from None
    return [tensor.reshape(like.shape) for tensor, like in zip(tensors, wanted, strict=True)]


def _layouts(tensors: Sequence[Tensor]) -> list[TensorLayout]:
    return [TensorLayout("", (value.numel(),)) for value in tensors]


# PEFT rejects a method that it already knows, for example when this module is imported again.
if IMPRESS not in PEFT_TYPE_TO_TUNER_MAPPING:
    register_peft_method(name=NAME, config_cls=ImpressConfig, model_cls=ImpressModel)
