"""What PEFT calls to put adapters on a network, and the registration of the method."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING
from peft.tuners._buffer_dict import BufferDict
from peft.tuners.tuners_utils import BaseTuner
from peft.utils import (
    TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING,
    register_peft_method,
)
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import Tensor, nn

from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.files import reason_of
from impresslearn.integrations.peft.config import IMPRESS, NAME, ImpressConfig
from impresslearn.integrations.peft.layer import NO_ADAPTER, ImpressLayer, wrapped


class ImpressModel(BaseTuner):
    """A network whose target layers are wrapped in `ImpressLayer`; PEFT makes it.

    Where an adapter cannot be added the network is left as it was.
    """

    prefix = f"{NAME}_"
    tuner_layer_cls = ImpressLayer
    target_module_mapping: Any = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

    def inject_adapter(
        self, model: nn.Module, adapter_name: str, *args: Any, **kwargs: Any
    ) -> None:
        """Adds an adapter.

        Raises InputError where no layer is meant, for layers that cannot be masked, and for masks
        that are not those of the saved adapter.
        """
        if "impress_masks" not in self._modules:  # PEFT's constructor adds the first adapter
            self.impress_masks = BufferDict(persistent=True)
            """Adapter -> the digest of its masks, (32,) uint8, saved with the coefficients."""
        # What is drawn is written into the configuration: the caller's may be used again.
        self.peft_config[adapter_name] = copy.copy(self.peft_config[adapter_name])
        try:
            super().inject_adapter(model, adapter_name, *args, **kwargs)
            self._check_masks(adapter_name)
        except Exception as error:
            self._take_off(adapter_name)
            if isinstance(error, ValueError) and not isinstance(error, ImpressLearnError):
                raise InputError(f"PEFT: {reason_of(error)}") from error
            raise

    def delete_adapter(self, adapter_name: str) -> None:
        """Forgets an adapter."""
        super().delete_adapter(adapter_name)
        del self.impress_masks[adapter_name]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Raises InputError for coefficients of other masks, before a layer loads any.

        Under a name in use PEFT loads them without a look at the settings that they came with.
        """
        for name, digest in self.impress_masks.items():
            # Those that older versions saved bring no digest.
            loaded: Tensor = state_dict.setdefault(f"{prefix}impress_masks.{name}", digest)
            if loaded is not digest and not torch.equal(loaded.cpu(), digest.cpu()):
                raise InputError(
                    f"the adapter {name!r} has other masks than the coefficients to load into it "
                    "were trained with; load them under a name that is not in use"
                )
        super()._load_from_state_dict(state_dict, prefix, *args)

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
        layer = wrapped(target, current_key.removeprefix("_orig_mod."))
        layer.set_adapter(self.active_adapters)
        layer.update_layer(adapter_name, peft_config)
        self._replace_module(parent, target_name, layer, target)

    @contextmanager
    def _enable_peft_forward_hooks(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        """Hands the `adapter_names` of a mixed batch to the layers. Raises InputError for others.

        PEFT calls it around forward and generate.
        """
        names = kwargs.get("adapter_names")
        if names is None:
            yield
            return
        if self.training:
            raise InputError("adapter_names are for prediction; call model.eval() first")
        if (kwargs.get("num_beams") or 1) > 1:
            raise InputError("a mixed batch cannot be searched by beams; leave out num_beams")
        unknown = set(names) - set(self.peft_config) - {NO_ADAPTER}
        if unknown:
            known = ", ".join([*self.peft_config, NO_ADAPTER])
            raise InputError(f"no adapter named {min(unknown)!r}; there are {known}")

        def with_names(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
            return args, kwargs | {"adapter_names": names}

        hooks = [
            module.register_forward_pre_hook(with_names, with_kwargs=True)
            for module in self.modules()
            if isinstance(module, (ImpressLayer, AuxiliaryTrainingWrapper))
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _layers(self, adapter_name: str) -> dict[str, ImpressLayer]:
        return {
            name: module
            for name, module in self.model.named_modules()
            if isinstance(module, ImpressLayer) and adapter_name in module.impress_alpha
        }

    def _check_masks(self, adapter_name: str) -> None:
        """Writes the digest of the masks into the settings, or compares it with theirs."""
        total = hashlib.sha256()
        for name, layer in sorted(self._layers(adapter_name).items()):
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
        self.impress_masks[adapter_name] = torch.tensor(list(total.digest()), dtype=torch.uint8)

    def _take_off(self, adapter_name: str) -> None:
        """Undoes what was done of an adapter; layers that are left without any go back."""
        if adapter_name in self.impress_masks:
            del self.impress_masks[adapter_name]
        for name, layer in self._layers(adapter_name).items():
            layer.delete_adapter(adapter_name)
            if not layer.impress_alpha:
                parent, _, last = name.rpartition(".")
                setattr(self.model.get_submodule(parent), last, layer.get_base_layer())


def register() -> None:
    """Makes the method known to PEFT, once."""
    if IMPRESS not in PEFT_TYPE_TO_TUNER_MAPPING:
        register_peft_method(name=NAME, config_cls=ImpressConfig, model_cls=ImpressModel)


register()
