"""`Backbone`: a frozen network that every task shares, run with a task's weights and statistics.

It knows no mask: callers pass the effective weights W ⊙ mask. The forward pass never writes to the
module. What torch would change while it runs (the attributes that `functional_call` swaps,
`module.training`) belongs to structural copies that share every tensor, one for each mode and
thread; buffers that a module may write to are passed in as copies.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from impresslearn.checks import ReadOnlySettings, check_integer
from impresslearn.data import Inputs
from impresslearn.errors import InputError
from impresslearn.networks import norms
from impresslearn.networks.calls import (
    Reader,
    call,
    check_batch,
    first_line,
    reader_of_logits,
    recorded_inputs,
    takes_flat,
)
from impresslearn.networks.heads import (
    HEADS,
    TUNED,
    Head,
    HeadKind,
    SmallParameter,
    TunedKind,
    small_parameters,
)
from impresslearn.networks.layers import MaskableLayer, joined, maskable_layers, vocabulary_of

Mode = Literal["train", "frozen", "eval", "batch"]
MODES: tuple[Mode, ...] = get_args(Mode)


class Backbone(ReadOnlySettings):
    """A frozen module with its maskable layers, norm policy and input shape.

    - `module`: taken over, not copied (`adapt` copies); its parameters stop requiring gradients.
    - `num_classes`: the outputs of the module.
    - `norm`: a policy of `networks.norms`.
    - `input_shape`: the shape of one input, None for a free size. A shape of one size, such as
      (784,), accepts any shape with that number of values, which are flattened.
    - `skip`, `include`: maskable layers to leave frozen, and those to mask instead of all, by name
      or pattern.
    - `input_dtype`: the dtype of inputs; by default the dtype of the weights, or int64 (token ids)
      if the first layer is an embedding.
    - `spec`: arguments of `create_backbone` that rebuild it, None for an adapted module.
    - `pretrained`: whether weights and statistics were trained.
    - `head`: "shared" is one last layer, masked like the others, of whose outputs a task uses the
      first; "own" lets every task bring a last layer with an output per class, and masks the rest.

    Further attributes: `layers`, the maskable layers in order; `weights`, their frozen weights by
    name; `small`, the frozen scales and shifts of norms and biases by name; `own_head`, the last
    layer if every task has its own, else None; `vocabulary`, the rows of an embedding that is the
    first layer, or None; `logits_reader`, what takes the logits out of the module's output, None if
    that is a tensor or nothing was computed yet. Raises InputError for settings that do not fit the
    module.
    """

    weights: dict[str, Tensor]
    small: dict[str, Tensor]

    def __init__(
        self,
        module: nn.Module,
        *,
        num_classes: int,
        norm: str,
        input_shape: Sequence[int | None] | None = None,
        skip: Collection[str] = (),
        include: Collection[str] | None = None,
        input_dtype: torch.dtype | None = None,
        spec: dict[str, Any] | None = None,
        pretrained: bool = False,
        head: HeadKind = "shared",
    ) -> None:
        if head not in HEADS:
            raise InputError(f"head must be {' or '.join(HEADS)}, got {head!r}")
        policy = norms.find_norm(norm)
        self.module = module
        self.num_classes = check_integer("num_classes", num_classes, 1)
        self.norm = norm
        if input_shape is not None:
            if isinstance(input_shape, (int, str)) or len(input_shape) == 0:
                raise InputError(f"input_shape must be the sizes of one input, got {input_shape!r}")
            for size in input_shape:
                if size is not None:
                    check_integer("input_shape", size, 1)
            input_shape = tuple(input_shape)
        self.input_shape = input_shape
        if not isinstance(input_dtype, torch.dtype | None):
            raise InputError(f"input_dtype must be a torch.dtype, got {input_dtype!r}")
        self.vocabulary = vocabulary_of(module)
        self._input_dtype = input_dtype or (torch.int64 if self.vocabulary else None)
        self.logits_reader: Reader | None = None
        self.spec = spec
        self.pretrained = pretrained
        self.head = head
        self.own_head = Head.of(module) if head == "own" else None
        self.layers = self._masked(skip, include)
        self._statistics = norms.statistic_names(module)
        if self._statistics and not policy.tracked:
            name = self._statistics[0]
            raise InputError(f"norm {norm!r} keeps no running statistics, but {name} is one")
        norms.drop_counters(module)
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
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self._like.device

    @property
    def dtype(self) -> torch.dtype:
        """The number format of the weights."""
        return self._like.dtype

    @property
    def input_dtype(self) -> torch.dtype:
        """The number format of inputs: the weights' format, or int64 for token ids."""
        return self._input_dtype or self.dtype

    @property
    def num_parameters(self) -> int:
        """Numbers in all parameters; tied parameters count once."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    @property
    def num_maskable(self) -> int:
        """Weights that masks cover."""
        return sum(layer.numel for layer in self.layers)

    @property
    def has_statistics(self) -> bool:
        """Whether tasks come with running statistics: norm per_task or shared, and batch norm."""
        return bool(self._statistics)

    @property
    def shares_statistics(self) -> bool:
        """Whether all tasks use the same running statistics: norm shared, and batch norm."""
        return self.has_statistics and norms.find_norm(self.norm).shared

    @property
    def has_task_statistics(self) -> bool:
        """Whether every task has its own running statistics: norm per_task, and batch norm."""
        return self.has_statistics and not self.shares_statistics

    @property
    def normalises_by_batch(self) -> bool:
        """Whether inputs of a batch depend on one another in every mode: norm batch."""
        return any(norm.running_mean is None for _, norm in norms.batch_norms(self.module))

    @property
    def most_classes(self) -> int | None:
        """The classes that a task may have; None for any number, if every task has its own head."""
        return self.num_classes if self.own_head is None else None

    def new_head(self, num_classes: int) -> dict[str, Tensor]:
        """A head of zeros for a task to start from, by parameter name; {} if tasks share a head."""
        return {} if self.own_head is None else self.own_head.zeros(num_classes, self._like)

    def small_parameters(
        self, kinds: Collection[TunedKind] = TUNED
    ) -> tuple[tuple[SmallParameter, ...], ...]:
        """The groups of scales of norms, shifts of norms, and biases, if the network has them."""
        return tuple(group for kind, group in self._small_groups if group and kind in kinds)

    def initial_statistics(self) -> dict[str, Tensor]:
        """Running statistics for a task to start from, as copies by buffer name.

        Mean 0 and variance 1 in a new network, the module's own in an adapted one; {} where
        `has_statistics` is False.
        """
        return {name: buffer.clone() for name, buffer in self._running_buffers.items()}

    def forward(
        self,
        weights: Mapping[str, Tensor],
        inputs: Tensor | Inputs,
        statistics: Mapping[str, Tensor] | None = None,
        mode: Mode = "eval",
    ) -> Tensor:
        """Logits (n, num_classes) of the network with these weights.

        - `weights`: layer name -> effective weights; other layers keep their frozen weights. A head
          of the task's own, with a row for each class, and changed `small_parameters` are given
          here too.
        - `inputs`: (n, ...), or several tensors.
        - `statistics`: all running statistics by buffer name; by default `initial_statistics`.
        - `mode`: one of these:

        | mode | dropout | batch norm |
        |---|---|---|
        | train | on | statistics of the batch; `statistics` are updated in place |
        | frozen | on | `statistics`, unchanged |
        | eval | off | `statistics`, unchanged |
        | batch | off | statistics of the batch; `statistics` are ignored (superposed tasks) |

        Under the norm policy "batch", batch norm uses the statistics of the batch in every mode.
        Raises InputError for an unknown mode, layer or statistic, and for unsuitable inputs.
        """
        self.check_inputs(inputs)
        self._check_weights(weights)
        tensors = {name: buffer.clone() for name, buffer in self._fixed_buffers.items()}
        if mode != "batch":
            tensors |= self._task_statistics(statistics)
        outputs = self.num_classes
        if self.own_head is not None and self.own_head.name in weights:
            outputs = len(weights[self.own_head.name])
        return self._logits(mode, tensors | self.parameters_of(weights), inputs, outputs)

    def features(
        self,
        weights: Mapping[str, Tensor],
        inputs: Tensor | Inputs,
        statistics: Mapping[str, Tensor] | None = None,
        mode: Mode = "eval",
    ) -> Tensor:
        """(n, f) inputs of the head, flattened; arguments and errors as of `forward`.

        The head is the layer that tasks replace, and where they share it the last maskable one;
        InputError is also raised unless its module is called once a pass, on a batch (n, ...).
        """
        name = self.own_head.name if self.own_head else self.layers[-1].parameter
        with recorded_inputs(self._view(mode).get_submodule(name.rpartition(".")[0])) as calls:
            logits = self.forward(weights, inputs, statistics, mode)
        if len(calls) != 1 or len(calls[0]) != len(logits):
            raise InputError(
                f"{self.name} has no features: the layer of {name} must be called once, on a batch"
            )
        return calls[0].flatten(1)

    def parameters_of(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights by layer name as tensors by name of the parameters that the module has."""
        return joined(self.layers, weights, self.module.get_parameter)

    def check_inputs(self, inputs: Tensor | Inputs) -> None:
        """Raises InputError unless `inputs` is a batch (n, ...) that fits `input_shape`."""
        check_batch(self.name, inputs, self.input_shape)

    def masking(self, names: Collection[str]) -> Backbone:
        """The same frozen module with these maskable layers. Raises InputError for unknown ones."""
        twin = copy.copy(self)
        vars(twin)["layers"] = self._masked((), names)
        twin._link()
        return twin

    def to(self, device: torch.device | str) -> Backbone:
        """A copy on that device. Raises InputError for a device that is not there."""
        moved = copy.deepcopy(self)
        try:
            moved.module.to(torch.device(device))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"device {device!s} cannot be used: {first_line(error)}") from None
        moved._link()
        return moved

    def attributes(self, mode: Mode) -> list[dict[str, Any]]:
        """Settings and Python state of all modules of a pass, without tensors and modules."""
        tensors_and_modules = ("_parameters", "_buffers", "_modules")
        return [
            {name: value for name, value in vars(part).items() if name not in tensors_and_modules}
            for part in self._view(mode).modules()
        ]

    def fingerprint(self, tensors: Mapping[str, Tensor] | None = None) -> str:
        """SHA-256 (hex) over names, dtypes, shapes and bytes of these tensors, by default all."""
        digest = hashlib.sha256()
        every = chain(self.module.named_parameters(), self.module.named_buffers())
        for name, tensor in every if tensors is None else tensors.items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            values = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(values.view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def _masked(
        self, skip: Collection[str], include: Collection[str] | None
    ) -> tuple[MaskableLayer, ...]:
        heads = self.own_head.shapes if self.own_head else {}
        layers = maskable_layers(self.module, skip, include)
        return tuple(layer for layer in layers if layer.name not in heads)

    def __getstate__(self) -> dict[str, Any]:
        linked = {"weights", "small", "_like", "_running_buffers", "_fixed_buffers", "_local"}
        return {name: value for name, value in self.__dict__.items() if name not in linked}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._link()

    def _link(self) -> None:
        """Refers to the module's tensors as they are now, and forgets older views."""
        heads = self.own_head.shapes if self.own_head else {}
        vars(self)["weights"] = {
            layer.name: layer.of(self.module.get_parameter(layer.parameter).detach())
            for layer in self.layers
        }
        first = [layer.parameter for layer in self.layers] + list(heads)
        self._like = self.module.get_parameter(first[0]).detach()
        self._small_groups = small_parameters(self.module, self.own_head)
        vars(self)["small"] = {
            small.name: self.module.get_parameter(small.name).detach()
            for small in chain(*self.small_parameters())
        }
        buffers = dict(self.module.named_buffers())
        self._running_buffers = {name: buffers.pop(name) for name in self._statistics}
        self._fixed_buffers = buffers
        self._local = threading.local()

    def _view(self, mode: Mode) -> nn.Module:
        if mode not in MODES:
            raise InputError(f"mode must be {', '.join(MODES)}, got {mode!r}")
        views = self._local.__dict__
        if mode in views:
            return views[mode]
        # A structural copy that shares every tensor: memory does not grow with modes and threads.
        tensors = chain(self.module.parameters(), self.module.buffers())
        view = copy.deepcopy(self.module, {id(tensor): tensor for tensor in tensors})
        view.train(mode in ("train", "frozen"))
        norms.settle_instance_norms(view)
        if mode == "frozen":
            for _, norm in norms.batch_norms(view):
                norm.eval()
        elif mode == "batch":
            norms.drop_statistics(view)
        views[mode] = view
        return view

    def _logits(
        self,
        mode: Mode,
        tensors: Mapping[str, Tensor],
        inputs: Tensor | Inputs,
        outputs: int,
    ) -> Tensor:
        flat = takes_flat(self.input_shape)
        # A user's module may change its inputs in place; our own networks do not.
        inputs_of_call = inputs if self.spec else inputs.clone()
        logits = call(self.name, self._view(mode), tensors, inputs_of_call, flat)
        if not isinstance(logits, Tensor) and (reader := reader_of_logits(logits)):
            vars(self)["logits_reader"] = reader
            logits = reader(logits, "logits")
        expected = (len(inputs), outputs)
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if got != expected:
            has_own_head = self.own_head is not None
            check = 'its last layer, or use head="shared"' if has_own_head else "num_classes"
            raise InputError(
                f"{self.name} must return logits {expected}, returned {got}; check {check}"
            )
        return logits

    def _check_weights(self, weights: Mapping[str, Tensor]) -> None:
        heads = {} if self.own_head is None else self.own_head.shapes
        for name, weight in weights.items():
            got = tuple(weight.shape)
            if name in heads:
                wanted = (got[:1] or (self.num_classes,)) + heads[name]
            elif (frozen := self.weights.get(name, self.small.get(name))) is not None:
                wanted = tuple(frozen.shape)
            else:
                raise InputError(f"{self.name} has no maskable layer {name!r}")
            if got != wanted:
                raise InputError(f"{name} needs weights of shape {wanted}, got {got}")

    def _task_statistics(self, statistics: Mapping[str, Tensor] | None) -> Mapping[str, Tensor]:
        if statistics is None:
            return self.initial_statistics()
        wrong = statistics.keys() ^ set(self._statistics)
        if wrong:
            name = min(wrong)
            problem = f"have no {name!r}" if name in self._statistics else f"hold {name!r}"
            raise InputError(
                f"the statistics {problem}; {self.name} (norm {self.norm!r}) expects the "
                f"{len(self._statistics)} that initial_statistics gives"
            )
        return statistics
