"""`Backbone`: a frozen network that every task shares, run with a task's weights and statistics.

A backbone does not know about masks: callers pass the weights to compute with, such as W ⊙ mask.
The forward pass never writes to the module. Each thread and mode has its own copy of the module's
structure, whose attributes a pass may change. Copies share tensors; a pass gets its own buffers.
"""

import copy
import hashlib
import operator
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property
from itertools import chain
from math import prod
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from impresslearn.checks import ReadOnlySettings, check_choice, check_integer, device_is_set
from impresslearn.data import Features, Inputs
from impresslearn.data.examples import bytes_of
from impresslearn.errors import InputError
from impresslearn.networks import layers, norms
from impresslearn.networks.layers import HeadKind, HeadLayer, SmallParameter, TunedKind

Mode = Literal["train", "frozen", "eval", "batch"]
Shape = Sequence[int | None]
# Words in torch's errors about unsuitable inputs.
INPUT_WORDS = ("shape", "size", "dim", "d input", "channel", "type", "same device", "index out")


class Backbone(ReadOnlySettings):
    """A frozen module with its maskable layers, norm policy and input shape.

    - `module`: used without a copy (`adapt` copies it); its parameters stop requiring gradients.
    - `num_classes`: the number of outputs of the module.
    - `norm`: as in `adapt`, or "none" or "group".
    - `input_shape`, `skip`, `include`, `input_dtype`, `head`: as in `adapt`.
    - `spec`: the arguments of `create_backbone` that rebuild it; None for an adapted module.
    - `pretrained`: whether weights and norm statistics were trained; default False.

    Raises InputError for settings that do not fit the module. Further attributes:

    - `layers`, `weights`: the maskable layers in order, and their frozen weights by name.
    - `small`: the frozen biases, and scales and shifts of norms, by name.
    - `own_head`: the last layer if every task has its own head, else None.
    - `vocabulary`: the number of rows if the first layer is an embedding, else None.
    - `device`, `dtype`: of the weights; `flattens`: whether inputs are flattened.
    - `has_statistics`: whether batch norms have running statistics, either one set for all tasks
      (`shares_statistics`) or one per task (`has_task_statistics`).
    """

    weights: dict[str, Tensor]
    small: dict[str, Tensor]
    device: torch.device
    dtype: torch.dtype

    def __init__(
        self,
        module: nn.Module,
        *,
        num_classes: int,
        norm: str,
        input_shape: Shape | None = None,
        skip: Collection[str] = (),
        include: Collection[str] | None = None,
        input_dtype: torch.dtype | None = None,
        spec: dict[str, Any] | None = None,
        pretrained: bool = False,
        head: HeadKind = "shared",
    ) -> None:
        check_choice("head", head, get_args(HeadKind))
        check_choice("norm of a backbone", norm, norms.POLICIES)
        if input_shape is not None:
            if not isinstance(input_shape, Sequence) or not input_shape:
                raise InputError(f"input_shape must be like (3, 32, 32), got {input_shape!r}")
            for size in input_shape:
                if size is not None:
                    check_integer("input_shape", size, 1)
            input_shape = tuple(input_shape)
        if not isinstance(input_dtype, torch.dtype | None):
            raise InputError(f"input_dtype must be a torch.dtype, got {input_dtype!r}")
        self.module = module
        self.num_classes = check_integer("num_classes", num_classes, 1)
        self.norm = norm
        self.input_shape = input_shape
        sizes = input_shape or ()
        self.flattens = len(sizes) == 1 and None not in sizes
        self.spec = spec
        self.pretrained = pretrained
        self.head = head
        self.own_head = HeadLayer.of(module) if head == "own" else None
        # Without the number of classes; {} if tasks share the head.
        self.head_shapes = self.own_head.shapes if self.own_head else {}
        every = layers.maskable_layers(module, skip, include)
        self.layers = tuple(layer for layer in every if layer.name not in self.head_shapes)
        self.vocabulary = layers.vocabulary_of(module)
        self.checked = False  # `check_passes` sets this, and the next attribute
        self.seen_inputs: Sequence[tuple[int | str, Sequence[int], str]] = ()  # key, shape, dtype
        self._restores = True  # whether a pass restores the attributes that a user's module changes
        # The initial bias of a task's own head; 1 if a ReLU follows, which has no gradient at 0.
        self.head_bias = 0.0
        # Whether logits are the head's outputs up to a constant per input; `check_passes` sets it.
        self.plain_head = True
        # Gets the logits from the module's output; None if the output is a tensor.
        self.logits_reader: Callable[[Any, str], Any] | None = None
        self._input_dtype = input_dtype or (torch.int64 if self.vocabulary else None)
        self._statistics = norms.statistic_names(module)
        _, kept_by = norms.POLICIES[norm]
        if self._statistics and kept_by is None:
            name = self._statistics[0]
            raise InputError(f"norm {norm!r} keeps no statistics, but the module has {name}")
        self.has_statistics = bool(self._statistics)
        self.shares_statistics = self.has_statistics and kept_by == "all"
        self.has_task_statistics = self.has_statistics and kept_by == "task"
        for _, batch_norm in norms.batch_norms(module):
            # A forward pass would change the counter of batches, so remove it.
            batch_norm.num_batches_tracked = None
            if isinstance(batch_norm, nn.SyncBatchNorm):  # it does not run without a counter
                batch_norm.__class__ = norms.LocalBatchNorm  # type: ignore[assignment]
            if batch_norm.momentum is None:  # a cumulative average needs the counter
                batch_norm.momentum = 0.1
        for parameter in module.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None
        self._link()

    def __repr__(self) -> str:
        return (
            f"Backbone({self.name}, num_classes={self.num_classes}, norm={self.norm!r}, "
            f"layers={len(self.layers)}, maskable={self.num_maskable:,}, head={self.head!r})"
        )

    @property
    def name(self) -> str:
        """The registered name, or the class of an adapted module."""
        return self.spec["name"] if self.spec else type(self.module).__name__

    @property
    def input_dtype(self) -> torch.dtype:
        """The dtype of inputs: by default the real dtype of the weights, or int64 for token ids."""
        return self._input_dtype or self.dtype.to_real()

    @property
    def num_parameters(self) -> int:
        """The number of parameters; tied parameters count once."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    @property
    def num_maskable(self) -> int:
        """The number of weights that masks cover."""
        return sum(layer.numel for layer in self.layers)

    @cached_property
    def normalises_by_batch(self) -> bool:
        """Whether outputs depend on the rest of the batch in every mode (norm policy "batch")."""
        return any(norm.running_mean is None for _, norm in norms.batch_norms(self.module))

    @property
    def most_classes(self) -> int | None:
        """The most classes of a task; None (no limit) if every task has its own head."""
        return self.num_classes if self.own_head is None else None

    @property
    def head_dtype(self) -> torch.dtype:
        """The dtype of the tasks' own heads, which may differ from `dtype`."""
        head = self.own_head
        return self.dtype if head is None else self.module.get_parameter(head.name).dtype

    def new_head(self, num_classes: int) -> dict[str, Tensor]:
        """A head for a task to start from, by parameter name; {} if tasks share a head."""
        head: dict[str, Tensor] = {}
        for name, shape in self.head_shapes.items():
            start = 0.0 if shape else self.head_bias  # a bias has the shape ()
            rows = (num_classes, *shape)
            head[name] = torch.full(rows, start, dtype=self.head_dtype, device=self.device)
        return head

    def small_parameters(
        self, kinds: Collection[TunedKind] = layers.TUNED
    ) -> tuple[tuple[SmallParameter, ...], ...]:
        """Scales of norms, shifts of norms, and biases: one group for each that the network has."""
        return tuple(group for kind, group in self._small_groups if group and kind in kinds)

    def initial_statistics(self) -> dict[str, Tensor]:
        """Copies of the module's running statistics, by buffer name, for a task to start from."""
        return {name: buffer.clone() for name, buffer in self._running_buffers.items()}

    def forward(
        self,
        weights: Mapping[str, Tensor],
        inputs: Tensor | Inputs,
        statistics: Mapping[str, Tensor] | None = None,
        mode: Mode = "eval",
    ) -> Tensor:
        """Logits (n, num_classes) of the network with these weights.

        - `weights`: layer name -> weights to compute with; other layers keep their frozen weights.
          A task's own head (a row per class) and `small_parameters` go here too, by parameter name.
        - `inputs`: (n, ...), or several tensors.
        - `statistics`: all running statistics by buffer name; by default `initial_statistics`.
        - `mode`: whether dropout is on, and which statistics batch norm uses:

        | mode | dropout | batch norm |
        |---|---|---|
        | train | on | statistics of the batch; `statistics` are updated in place |
        | frozen | on | `statistics`, unchanged |
        | eval | off | `statistics`, unchanged |
        | batch | off | statistics of the batch; `statistics` are ignored |

        Under the norm policy "batch", batch norm uses the statistics of the batch in every mode.
        """
        logits = self._outputs(weights, inputs, statistics, mode)
        outputs = self.num_classes
        if self.own_head is not None and self.own_head.name in weights:
            outputs = len(weights[self.own_head.name])
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if got != (len(inputs), outputs):
            where = " in training" * self._view(mode).training
            line = f"{self.name} must return logits {(len(inputs), outputs)}{where}, returned {got}"
            raise InputError(f"{line}; {self._advice(got, inputs)}")
        return logits

    def features(
        self,
        weights: Mapping[str, Tensor],
        inputs: Tensor | Inputs,
        statistics: Mapping[str, Tensor] | None = None,
        mode: Mode = "eval",
    ) -> Tensor:
        """Features (n, f): the flattened inputs of the head. Arguments are as in `forward`.

        The head is the layer that each task replaces, or the last maskable layer if tasks share it.
        A head that reads every token (n, tokens, f) is skipped, and features are what the network
        then returns, as the last token's. Raises InputError unless the head reads the batch once.
        """
        name = self.own_head.name if self.own_head else self.layers[-1].parameter
        layer = self._view(mode).get_submodule(name.rpartition(".")[0])
        calls: list[Tensor] = []
        returned: Any = None

        def read(_: nn.Module, arguments: tuple[Tensor, ...], outputs: Tensor) -> Tensor:
            calls.extend(arguments[:1])
            return arguments[0] if calls and calls[0].dim() == 3 else outputs

        with layer.register_forward_hook(read):
            try:
                returned = self._outputs(weights, inputs, statistics, mode)
            except Exception:
                if not calls or calls[0].dim() != 3:
                    raise  # else it may fail just because its head was skipped
        if len(calls) != 1 or len(calls[0]) != len(inputs):
            line = f"the layer of {name} must be called once, on a batch"
            raise InputError(f"{self.name} has no features: {line}")
        is_skipped = getattr(returned, "shape", None) == calls[0][:, 0].shape
        return (returned if is_skipped and calls[0].dim() == 3 else calls[0]).flatten(1)

    def _outputs(
        self,
        weights: Mapping[str, Tensor],
        inputs: Tensor | Inputs,
        statistics: Mapping[str, Tensor] | None,
        mode: Mode,
    ) -> Any:
        """What the network returns; the arguments are those of `forward`."""
        self.check_inputs(inputs)
        # Pass copies, because a module may write to its buffers.
        tensors = {name: buffer.clone() for name, buffer in self._fixed_buffers.items()}
        if mode != "batch":
            statistics = self.initial_statistics() if statistics is None else statistics
            if wrong := statistics.keys() ^ self._running_buffers.keys():
                fault = "have the unknown" if min(wrong) in statistics else "lack the"
                rule = "give every name in backbone.initial_statistics(), and no other"
                raise InputError(f"statistics {fault} name {min(wrong)!r}; {rule}")
            tensors.update(statistics)
        tensors.update(self.parameters_of(weights))
        for name in self._ties.keys() & tensors.keys():
            tensors.update(dict.fromkeys(self._ties[name], tensors[name]))
        if self.spec is None:  # a user's module may change its inputs in place
            inputs = inputs.clone()
        if not isinstance(inputs, Inputs):
            inputs = Inputs(inputs.flatten(1) if self.flattens else inputs)
        else:  # JSON may hold 1 for 1.0 or True: integers and booleans get the dtypes seen first
            cast = dict(inputs.items())
            for key, _, dtype in self.seen_inputs:
                if key in cast and not cast[key].is_floating_point():
                    cast[key] = cast[key].to(getattr(torch, dtype))
            inputs = Inputs.from_items(cast)
        view = self._view(mode)
        # A user's module may change its attributes in a pass: restore them afterwards.
        kept = attributes_of(view) if self.spec is None and self._restores else []
        try:
            # If the caller has set a default device, the module makes tensors on its own device.
            with self.device if device_is_set.get() else nullcontext():
                given = inputs.arguments, inputs.named
                # Not strict: tensors that cannot differ from the module's own are left out.
                logits = functional_call(view, tensors, *given, tie_weights=False)
        except (RuntimeError, ValueError, AssertionError, IndexError, TypeError) as error:
            if line := self._explained(error, inputs):
                raise InputError(line) from error
            raise
        finally:
            for attributes, first in kept:
                attributes.clear()
                attributes.update(first)
        if not isinstance(logits, Tensor):  # transformers' models return objects or dictionaries
            reader = operator.getitem if isinstance(logits, Mapping) else getattr
            with suppress(KeyError, AttributeError):
                logits = reader(logits, "logits")
                # `__setattr__` refuses to change an attribute.
                vars(self)["logits_reader"] = reader
        return logits

    def headed(self, features: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """Logits (n, K) from `features`, by the task's own head, which is in `weights`."""
        weight, *bias = (weights[name] for name in self.head_shapes)
        return F.linear(features.to(weight.dtype), weight.flatten(1), *bias)

    def parameters_of(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights by layer name as tensors by parameter name; a head has any number of rows."""
        parameters: dict[str, Tensor] = {}
        for name, weight in weights.items():
            got = tuple(weight.shape)
            frozen = self.weights.get(name, self.small.get(name))
            if name in self.head_shapes:
                wanted = (got[:1] or (self.num_classes,)) + self.head_shapes[name]
            elif frozen is not None:
                wanted = tuple(frozen.shape)
            else:
                raise InputError(f"{self.name} has no maskable layer {name!r}; see its .layers")
            if got != wanted:
                raise InputError(f"{name} needs weights of shape {wanted}, got {got}")
            layer = self._parts.get(name)
            if layer is None:
                parameters[name] = weight
            elif layer.part == "transposed":
                # Contiguous, as in an export, so that both compute exactly the same numbers.
                parameters[name] = weight.t().contiguous()
            elif layer.parameter not in parameters:
                # One parameter holds the layers q, k and v. Those left out keep their frozen rows.
                thirds = []
                packed = self.module.get_parameter(layer.parameter)
                for third, rows in zip(layers.THIRDS, packed.chunk(3), strict=True):
                    thirds.append(weights.get(f"{layer.parameter}.{third}", rows))
                parameters[layer.parameter] = torch.cat(thirds)
        return parameters

    def check_inputs(self, inputs: Tensor | Inputs) -> None:
        """Raises InputError unless `inputs` is a batch (n, ...) that fits `input_shape`."""
        wanted = self.input_shape
        if isinstance(inputs, Features):
            line = "only tasks that consist of a head, as with the preset few_labels, read features"
            raise InputError(f"{line}; give the inputs themselves")
        seen = [key for key, _, _ in self.seen_inputs]
        given = [key for key, _ in inputs.items()] if isinstance(inputs, Inputs) else [0]
        are_named = all(isinstance(key, str) for key in (*seen, *given))
        if len(given) < len(seen) or (are_named and not set(seen) <= set(given)):
            # Without its mask a transformer would read padding as words, and answer all the same.
            got = inputs if isinstance(inputs, Inputs) else "one tensor"
            line = f"{self.name} takes {', '.join(map(str, seen))} since its first data, got {got}"
            raise InputError(f"{line}; give all of these inputs, by the same names")
        if isinstance(inputs, Inputs) and wanted is None:
            return
        if not isinstance(inputs, Tensor) or inputs.dim() == 0:
            got = inputs if isinstance(inputs, Inputs) else type(inputs).__name__
            got = "a single number" if isinstance(inputs, Tensor) else got
            raise InputError(f"{self.name} expects a batch of inputs as one tensor, got {got}")
        if wanted is None:
            return

        def fits(shape: Sequence[int]) -> bool:
            if self.flattens:
                return prod(shape) == wanted[0]
            pairs = zip(shape, wanted, strict=False)
            return len(shape) == len(wanted) and all(size in (None, got) for got, size in pairs)

        shape = tuple(inputs.shape[1:])
        if fits(shape):
            return
        hint = ""
        if fits(inputs.shape):
            hint = "; add a batch dimension: inputs[None]"
        elif self.flattens:
            hint = f", or make a network with in_features={prod(shape)}" if self.spec else ""
            hint = f"; give {wanted[0]}{hint}"
        elif len(shape) == 3 and fits((shape[2], *shape[:2])):
            hint = "; channels come first: inputs.permute(0, 3, 1, 2)"
        elif len(shape) == 3 and shape[0] == 1 and fits((wanted[0] or 1, *shape[1:])):
            hint = f"; repeat the channel {wanted[0]} times, or make a network for one channel"
        sizes = ", ".join("*" if size is None else str(size) for size in wanted)
        expected = f"{sizes} values per input" if self.flattens else f"inputs of shape ({sizes})"
        raise InputError(f"{self.name} expects {expected}, got the shape {shape}{hint}")

    def to(self, device: torch.device | str) -> "Backbone":
        """A copy on another device. Raises InputError if the device cannot be used."""
        moved = copy.deepcopy(self)
        try:
            moved.module.to(torch.device(device))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, AssertionError, TypeError):
            raise InputError(f"device {device} cannot be used; use cpu, or cuda on a GPU") from None
        moved._link()
        return moved

    def fingerprint(self, tensors: Mapping[str, Tensor] | None = None) -> str:
        """SHA-256 (hex) of the names, dtypes, shapes and bytes of tensors; by default of all."""
        digest = hashlib.sha256()
        every = chain(self.module.named_parameters(), self.module.named_buffers())
        for name, tensor in every if tensors is None else tensors.items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(bytes_of(tensor))
        return digest.hexdigest()

    @cached_property
    def identity(self) -> str:
        """`fingerprint` of the tensors that features depend on: all but the tasks' own head."""
        every = chain(self.module.named_parameters(), self.module.named_buffers())
        tensors = {name: tensor for name, tensor in every if name not in self.head_shapes}
        return self.fingerprint(tensors)

    def __getstate__(self) -> dict[str, Any]:
        # `_link` sets these again. Copies of the tensors would no longer be the module's tensors.
        linked = {"weights", "small", "_small_groups", "_running_buffers", "_fixed_buffers"}
        linked |= {"_local", "identity"}
        return {name: value for name, value in self.__dict__.items() if name not in linked}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._link()

    def _link(self) -> None:
        """Collects the module's present tensors by name, and drops the copies made by `_view`."""
        weights: dict[str, Tensor] = {}
        for layer in self.layers:
            parameter = self.module.get_parameter(layer.parameter).detach()
            weights[layer.name] = layer.of(parameter)
        # A network may consist of its head alone, without `layers`.
        names = [layer.parameter for layer in self.layers]
        names += [self.own_head.name] if self.own_head else []
        like = self.module.get_parameter(names[0])
        self._parts = {layer.name: layer for layer in self.layers if layer.part}
        self._small_groups = layers.small_parameters(self.module, self.head_shapes)
        small_names = [member.name for member in chain(*self.small_parameters())]
        small = {name: self.module.get_parameter(name).detach() for name in small_names}
        buffers = dict(self.module.named_buffers())
        # torch's own ties use all names of a tensor. A module with two names is then changed twice
        # and keeps the weights of a pass. So collect the names of each module only once.
        names_of: dict[int, list[str]] = {}
        for prefix, part in self.module.named_modules():
            for named in (part.named_parameters, part.named_buffers):
                for name, tensor in named(prefix, recurse=False, remove_duplicate=False):
                    names_of.setdefault(id(tensor), []).append(name)
        self._ties = {first: others for first, *others in names_of.values() if others}
        self._running_buffers = {name: buffers.pop(name) for name in self._statistics}
        self._fixed_buffers = buffers
        self._local = threading.local()
        vars(self).update(weights=weights, small=small, device=like.device, dtype=like.dtype)

    def _view(self, mode: Mode) -> nn.Module:
        """This thread's copy of the module's structure for a mode."""
        views = self._local.__dict__
        if mode in views:
            return views[mode]
        check_choice("mode", mode, get_args(Mode))
        # The copy shares every tensor, so memory does not grow with modes and threads.
        tensors = chain(self.module.parameters(), self.module.buffers())
        view = copy.deepcopy(self.module, {id(tensor): tensor for tensor in tensors})
        view.train(mode in ("train", "frozen"))
        for layer in view.modules():
            # These layers normalise in training as they do in prediction.
            spectral = isinstance(layer, _SpectralNorm) or any(
                isinstance(hook, SpectralNorm) for hook in layer._forward_pre_hooks.values()
            )
            if spectral or (isinstance(layer, _InstanceNorm) and layer.running_mean is not None):
                layer.eval()
        if mode == "frozen":
            for _, norm in norms.batch_norms(view):
                norm.eval()
        elif mode == "batch":
            norms.drop_statistics(view)
        views[mode] = view
        return view

    def head_advice(self) -> str:
        """The advice for a module whose last defined layer does not give the logits."""
        assert self.own_head is not None
        line = f"{self.own_head.name}, the layer that was defined last, does not give the logits"
        advice = "define the layer that gives them last, and return its outputs as they are"
        return f'{line}; {advice}, or use head="shared"'

    def _advice(self, got: tuple[int, ...] | str, inputs: Tensor | Inputs) -> str:
        """The advice for a network that returns something other than logits."""
        if isinstance(got, str):
            return "return the tensor of logits alone, or as an attribute or a key `logits`"
        if len(got) != 2 or got[0] != len(inputs):
            return "expected one row for each input: flatten further dimensions, squeeze none"
        if self.own_head is None:
            return f"adapt it with num_classes={got[1]}"
        return f"{self.head_advice()}, num_classes={got[1]}"

    def _explained(self, error: Exception, inputs: Inputs) -> str | None:
        """One line about unsuitable inputs; None if the error has another cause."""
        message = str(error).split("\n", 1)[0]
        if isinstance(error, TypeError):
            message = message.replace("got an unexpected keyword argument", "has no argument")
            line = f"{self.name} does not take {inputs}: {message}; name inputs as its forward does"
            hint = "give one tensor alone, or adapt a wrapper that makes the tuple or dictionary"
            return f"{line}, {hint}" if "forward() " in message else None
        is_of_device = isinstance(error, torch.OutOfMemoryError) or message.startswith("CUDA")
        if is_of_device or not any(word in message.lower() for word in INPUT_WORDS):
            return None
        shapes = ", ".join(str(tuple(tensor.shape[1:])) for tensor in inputs.tensors)
        kinds = ", ".join(str(tensor.dtype) for tensor in inputs.tensors).replace("torch.", "")
        where = f"{self.name} cannot take a batch of {len(inputs)} {kinds} inputs of shape {shapes}"
        if "more than 1 value per channel" in message:
            return f"{where}: a batch norm got one value per channel; give more inputs at once"
        if sizes := re.search(r"\(\d+x(\d+) and (\d+)x\d+\)", message):
            message = f"a layer that takes {sizes[2]} values got {sizes[1]}"
        hint = "give inputs of the shape and type it was made for; it must take any number of them"
        return f"{where} on {inputs.device}: {message}; {hint}"


def attributes_of(module: nn.Module) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The attribute dictionary of each submodule, with a copy of it to restore it from."""
    return [(vars(part), dict(vars(part))) for part in module.modules()]
