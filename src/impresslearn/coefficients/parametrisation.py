"""What a task learns. A parametrisation is one object that says which tensors a task keeps.

A task combines up to three of them: (1) `masks` or `multipliers`; (2) a `readout` or a head of
its own; (3) changes of norms and biases (`deltas`). Training, rounding, counting and the store loop
over `Parametrisation.layout` and read the class attributes below. A new parametrisation is one file
and one call of `register_parametrisation`, whose `makers` add values to the learner's setting
`granularity`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from impresslearn.checks import check_choice
from impresslearn.coefficients.quantisation import (
    Grid,
    Grids,
    TensorLayout,
    decode_tensors,
    encode_tensors,
)
from impresslearn.errors import InputError, StoreError
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.layers import TunedKind

CODED_SPEED = 10.0  # multiple of the recipe's learning rate for coded integers


@dataclass(frozen=True)
class CoefficientSpec:
    """The kind of numbers that a task learns.

    - granularity: "layer", "unit", "weight", "readout", or a name that was registered.
    - output_scale: whether masks also get a learned scale per output unit.
    - bit_price: None for real numbers; otherwise numbers are integers on a grid, and one bit of
      their code costs this number of bits of the examples' cross-entropy (the weight λ of
      rate–distortion; 1 gives the shortest description of labels and coefficients together).
    - residual: whether masks change the network's own weights, W ⊙ (1 + Σ α M).
    - tune: small parameters to learn too: "norm" for scales and shifts of norms, "bias".

    `parametrisation` is what `granularity` names; a head and small parameters have their own.
    Raises InputError for settings that it cannot use.
    """

    granularity: str = "layer"
    output_scale: bool = False
    bit_price: float | None = None
    residual: bool = False
    tune: tuple[TunedKind, ...] = ()
    parametrisation: Parametrisation = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            check_choice("granularity", self.granularity, _MAKERS)
        except InputError as error:
            is_name = isinstance(self.granularity, str)
            hint = "; if it is your own, import its module" if is_name else ""
            raise InputError(f"{error}{hint}") from None
        # Made here, so that settings that do not go together fail at once.
        object.__setattr__(self, "parametrisation", _MAKERS[self.granularity][1](self))


@dataclass(frozen=True)
class Start:
    """How a tensor is initialised.

    - value: of every entry; under "coded" also the offset of its grid.
    - step: the first step of the grid.
    - speed: under "coded" the multiple of the learning rate at which its integers are trained.
    """

    value: float
    step: float = 0.1
    speed: float = CODED_SPEED


Starts = Sequence[Start]
Tensors = Sequence[Tensor]
Weights = dict[str, Tensor]  # by the parameter's name
Mixture = tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]  # coefficients, and scales


class Parametrisation(ABC):
    """Names and lays out the tensors that a task keeps, and makes weights of them.

    A subclass is a frozen dataclass of JSON values. Tensors are always in the order of `layout`.

    - kind: the name of the class in stores.
    - uses_masks: whether it needs a bank.
    - is_readout: whether a task is fitted to features of the network, by `ReadoutFit`.
    - is_sparse: whether its layouts are sparse and it brings its own `integers`.
    - price_warmup: the share of a new task's steps over which the price of bits rises from zero.
    """

    kind: ClassVar[str]
    uses_masks: ClassVar[bool] = False
    is_readout: ClassVar[bool] = False
    is_sparse: ClassVar[bool] = False
    price_warmup: ClassVar[float] = 0.25

    @abstractmethod
    def layout(self, backbone: Backbone, num_masks: int, num_classes: int) -> list[TensorLayout]:
        """The tensors that a task keeps."""

    def start(self, backbone: Backbone, bank: MaskBank, num_masks: int, coded: bool) -> Starts:
        """Initial values, () for zeros; coded: whether they are integers on a grid."""
        return ()

    def weights(self, backbone: Backbone, bank: MaskBank, tensors: Tensors) -> Weights:
        """The parameters that the task computes with, by name, differentiable in the tensors."""
        return {}

    def mixture(self, tensors: Tensors) -> Mixture:
        """Coefficients of masks, (N,) or (N, units) per layer, and scales per layer, if any.

        The penalty of eq. 2, charts and task inference read it. A parametrisation that mixes no
        masks does not override it.
        """
        return (), None

    @classmethod
    def mixes_masks(cls) -> bool:
        """Whether its tensors mix masks."""
        return cls.mixture is not Parametrisation.mixture

    def integers(
        self, backbone: Backbone, seed: int, previous: Sequence[Tensor], grids: Sequence[Grid]
    ) -> Any:
        """Trainable integers like `QuantizedParameters`, if sparse; previous: initial values."""
        raise NotImplementedError(f"{type(self).__name__} sets is_sparse and needs this method")


@dataclass(frozen=True)
class Coefficients:
    """The numbers of one task, float32.

    - parts: its parametrisations; numbers: the tensors of each, in layout order.
    - num_masks: the number of masks that are combined, from the start of the bank.
    - grids: a grid for each tensor where they were learned on grids.
    """

    parts: tuple[Parametrisation, ...]
    numbers: tuple[tuple[Tensor, ...], ...]
    num_masks: int = 0
    grids: Grids | None = None

    @property
    def residual(self) -> bool:
        """Whether they start from the network itself."""
        return any(getattr(part, "residual", False) for part in self.parts)

    @property
    def alpha(self) -> tuple[Tensor, ...]:
        """The coefficients of masks, (N,) or (N, units) per layer; () where there are none."""
        return self._mixture()[0]

    @property
    def output_scale(self) -> tuple[Tensor, ...] | None:
        """The scales of output units, (units,) per layer."""
        return self._mixture()[1]

    @property
    def head(self) -> tuple[Tensor, ...] | None:
        """The task's own head, (features, K) and perhaps (K,)."""
        return self.of("head") or self.of("readout")

    def of(self, kind: str) -> tuple[Tensor, ...] | None:
        """The tensors of the parametrisation of this kind; None where there is none."""
        for part, tensors in zip(self.parts, self.numbers, strict=True):
            if part.kind == kind:
                return tensors
        return None

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, part after part."""
        return chain(*self.numbers)

    def _mixture(self) -> Mixture:
        for part, tensors in zip(self.parts, self.numbers, strict=True):
            if (mixture := part.mixture(tensors))[0]:
                return mixture
        return (), None


@dataclass(frozen=True)
class StoredCoefficients:
    """The numbers of one task as a store keeps them; content: what `encode_tensors` wrote."""

    precision: str
    parts: tuple[Parametrisation, ...]
    num_masks: int
    num_classes: int
    content: bytes = field(repr=False)

    def restore(self, backbone: Backbone) -> Coefficients:
        """The float32 tensors on the backbone's device. Raises ValueError for a damaged code."""
        layouts = layouts_of(self.parts, backbone, self.num_masks, self.num_classes)
        tensors, grids = decode_tensors(self.content, list(chain(*layouts)), self.precision)
        moved = [tensor.to(backbone.device) for tensor in tensors]
        return Coefficients(self.parts, grouped(moved, layouts), self.num_masks, grids)


def round_coefficients(
    coefficients: Coefficients, precision: str, backbone: Backbone, num_classes: int
) -> StoredCoefficients:
    """Rounds coefficients to a precision, as bytes. Raises as `encode_tensors`."""
    parts, num_masks = coefficients.parts, coefficients.num_masks
    layouts = list(chain(*layouts_of(parts, backbone, num_masks, num_classes)))
    content = encode_tensors(coefficients.tensors(), layouts, precision, coefficients.grids)
    return StoredCoefficients(precision, parts, num_masks, num_classes, content)


def layouts_of(
    parts: Sequence[Parametrisation], backbone: Backbone, num_masks: int, num_classes: int
) -> list[list[TensorLayout]]:
    """The layouts of several parametrisations."""
    return [part.layout(backbone, num_masks, num_classes) for part in parts]


def task_weights(bank: MaskBank, backbone: Backbone, coefficients: Coefficients) -> Weights:
    """The parameters that a task replaces in the network, by name."""
    weights: Weights = {}
    for part, tensors in zip(coefficients.parts, coefficients.numbers, strict=True):
        weights |= part.weights(backbone, bank, tensors)
    return weights


Value = TypeVar("Value")


def grouped(values: Sequence[Value], sizes: Sequence[Sequence]) -> tuple[tuple[Value, ...], ...]:
    """Values in consecutive groups as long as the sequences of `sizes`."""
    left = iter(values)
    return tuple(tuple(islice(left, len(group))) for group in sizes)


Maker = Callable[[CoefficientSpec], Parametrisation]
_KINDS: dict[str, type[Parametrisation]] = {}
# For each value of `granularity` the kind that registered it, and its maker.
_MAKERS: dict[str, tuple[str, Maker]] = {}


def register_parametrisation(
    kind: type[Parametrisation], makers: Mapping[str, Maker] | None = None
) -> None:
    """Makes a parametrisation known to learners and stores.

    - kind: the class; its `kind` names it in stores.
    - makers: for each `granularity` that selects it, a function that makes it from a
      `CoefficientSpec`, raising InputError for settings that do not fit.

    Raises InputError for a name that is taken by another class.
    """
    if _KINDS.get(kind.kind, kind).__qualname__ != kind.__qualname__:
        raise InputError(f"a parametrisation {kind.kind!r} is registered already; rename yours")
    own = {name: (kind.kind, maker) for name, maker in (makers or {}).items()}
    for name in own:
        if _MAKERS.get(name, (kind.kind,))[0] != kind.kind:
            raise InputError(f"granularity {name!r} is registered already; choose another name")
    _KINDS[kind.kind] = kind
    _MAKERS.update(own)


def to_plain(parts: Sequence[Parametrisation]) -> list[dict[str, Any]]:
    """Parametrisations as JSON values."""
    return [{"kind": part.kind, **asdict(part)} for part in parts]  # type: ignore[call-overload]


def from_plain(plain: Sequence[Mapping[str, Any]]) -> tuple[Parametrisation, ...]:
    """The parametrisations of `to_plain`. Raises StoreError for an unregistered kind."""
    parts = []
    for settings in plain:
        # JSON makes lists of tuples; these dataclasses hold no lists.
        pairs = settings.items()
        fields = {name: tuple(v) if isinstance(v, list) else v for name, v in pairs}
        if (kind := _KINDS.get(str(fields.pop("kind")))) is None:
            line = f"the parametrisation {settings['kind']!r} is not registered"
            raise StoreError(f"{line}; import what registers it")
        parts.append(kind(**fields))
    return tuple(parts)
