"""Parametrisations: objects that define which tensors a task keeps and how they become weights.

A task combines up to three parametrisations: (1) `masks` or `multipliers`; (2) a `readout` or the
task's own head; (3) changes of norms and biases (`deltas`). Training, rounding and the store are
the same for all: they only use the methods and class attributes of `Parametrisation`. To add your
own, write a subclass and call `register_parametrisation`, which can add values to the learner's
setting `granularity`.
"""

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

CODED_SPEED = 10.0  # the learning rate of coded integers, as a multiple of the recipe's


@dataclass(frozen=True)
class CoefficientSpec:
    """The kind of numbers that a task learns.

    - granularity, output_scale, tune: as in `ImpressLearner`.
    - bit_price: None for real numbers. Otherwise numbers are integers on a grid, and this is the
      price of one bit of their code; 1 gives the shortest description of labels and coefficients
      together.
    - residual: whether masks change the network's own weights: W ⊙ (1 + Σ α M), not W ⊙ Σ α M.

    The field `parametrisation` is made from `granularity`. Raises InputError for settings that do
    not go together.
    """

    granularity: str = "layer"
    output_scale: bool = False
    bit_price: float | None = None
    residual: bool = False
    tune: tuple[TunedKind, ...] = ()
    parametrisation: "Parametrisation" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            check_choice("granularity", self.granularity, _MAKERS)
        except InputError as error:
            is_name = isinstance(self.granularity, str)
            hint = "; if it is your own, import its module" if is_name else ""
            raise InputError(f"{error}{hint}") from None
        # Made here, so that settings that do not go together fail at once.
        _, make = _MAKERS[self.granularity]
        object.__setattr__(self, "parametrisation", make(self))


@dataclass(frozen=True)
class Start:
    """How a tensor is initialised. The last two fields matter for integers on a grid ("coded").

    - value: the value of every entry, and the offset of the grid.
    - step: the initial step of the grid.
    - speed: the learning rate of the integers, as a multiple of the recipe's.
    """

    value: float
    step: float = 0.1
    speed: float = CODED_SPEED


Starts = Sequence[Start]
Tensors = Sequence[Tensor]
Weights = dict[str, Tensor]  # by the parameter's name
Mixture = tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]  # coefficients and scales per layer


class Parametrisation(ABC):
    """Defines the tensors that a task keeps, and computes the task's weights from them.

    A subclass is a frozen dataclass of JSON values. Tensors are always in the order of `layout`.

    - kind: the name of the class in stores.
    - uses_masks: whether it combines the masks of a bank, or reads features under them.
    - is_readout: whether `ReadoutFit` fits it to features of the network, without gradients.
    - is_sparse: whether its tensors are sparse; it then has its own method `integers`.
    - price_warmup: the fraction of a new task's steps during which the price of bits rises from 0.
    """

    kind: ClassVar[str]
    uses_masks: ClassVar[bool] = False
    is_readout: ClassVar[bool] = False
    is_sparse: ClassVar[bool] = False
    price_warmup: ClassVar[float] = 0.25

    @abstractmethod
    def layout(self, backbone: Backbone, num_masks: int, num_classes: int) -> list[TensorLayout]:
        """The names and shapes of the tensors that a task keeps."""

    def start(self, backbone: Backbone, bank: MaskBank, num_masks: int, coded: bool) -> Starts:
        """The initial values of the tensors, () for zeros; coded: whether they are on grids."""
        return ()

    def weights(self, backbone: Backbone, bank: MaskBank, tensors: Tensors) -> Weights:
        """The network parameters that the task replaces, by name, differentiable in `tensors`."""
        return {}

    def mixture(self, tensors: Tensors) -> Mixture:
        """The coefficients of masks, (N,) or (N, units) per layer, and scales per layer or None.

        Used by the penalty of eq. 2, charts and task inference. Override this method only if the
        parametrisation mixes masks.
        """
        return (), None

    @classmethod
    def mixes_masks(cls) -> bool:
        """Whether this class mixes masks, and so overrides `mixture`."""
        return cls.mixture is not Parametrisation.mixture

    def integers(
        self, backbone: Backbone, seed: int, previous: Sequence[Tensor], grids: Sequence[Grid]
    ) -> Any:
        """For sparse kinds: trainable integers with the methods of `QuantizedParameters`."""
        raise NotImplementedError(f"{type(self).__name__} sets is_sparse and needs this method")


@dataclass(frozen=True)
class Coefficients:
    """The numbers of one task, as float32 tensors.

    - parts: the task's parametrisations; numbers: the tensors of each part, in layout order.
    - num_masks: the number of masks that the task combines: the first ones of the bank.
    - grids: one grid per tensor if the numbers were learned on grids, otherwise None.
    """

    parts: tuple[Parametrisation, ...]
    numbers: tuple[tuple[Tensor, ...], ...]
    num_masks: int = 0
    grids: Grids | None = None

    @property
    def residual(self) -> bool:
        """Whether the numbers change the network's own weights."""
        return any(getattr(part, "residual", False) for part in self.parts)

    @property
    def alpha(self) -> tuple[Tensor, ...]:
        """The coefficients of masks, (N,) or (N, units) per layer; () without masks."""
        return self._mixture()[0]

    @property
    def output_scale(self) -> tuple[Tensor, ...] | None:
        """The scales of output units, (units,) per layer."""
        return self._mixture()[1]

    @property
    def head(self) -> tuple[Tensor, ...] | None:
        """The task's own head or readout: weights (features, K), and a bias (K,) if it has one."""
        return self.of("head") or self.of("readout")

    def of(self, kind: str) -> tuple[Tensor, ...] | None:
        """The tensors of the parametrisation of this kind; None if the task has none."""
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
    """The numbers of one task as a store keeps them; content: bytes by `encode_tensors`."""

    precision: str
    parts: tuple[Parametrisation, ...]
    num_masks: int
    num_classes: int
    content: bytes = field(repr=False)

    def restore(self, backbone: Backbone) -> Coefficients:
        """Decodes the numbers, on the backbone's device. Raises ValueError for damaged bytes."""
        layouts = layouts_of(self.parts, backbone, self.num_masks, self.num_classes)
        tensors, grids = decode_tensors(self.content, list(chain(*layouts)), self.precision)
        moved = [tensor.to(backbone.device) for tensor in tensors]
        return Coefficients(self.parts, grouped(moved, layouts), self.num_masks, grids)


def round_coefficients(
    coefficients: Coefficients, precision: str, backbone: Backbone, num_classes: int
) -> StoredCoefficients:
    """Rounds coefficients to a precision and encodes them. Raises as `encode_tensors` does."""
    parts, num_masks = coefficients.parts, coefficients.num_masks
    layouts = list(chain(*layouts_of(parts, backbone, num_masks, num_classes)))
    content = encode_tensors(coefficients.tensors(), layouts, precision, coefficients.grids)
    return StoredCoefficients(precision, parts, num_masks, num_classes, content)


def layouts_of(
    parts: Sequence[Parametrisation], backbone: Backbone, num_masks: int, num_classes: int
) -> list[list[TensorLayout]]:
    """The layouts of several parametrisations, one list per part."""
    return [part.layout(backbone, num_masks, num_classes) for part in parts]


def task_weights(bank: MaskBank, backbone: Backbone, coefficients: Coefficients) -> Weights:
    """The parameters that a task replaces in the network, by name."""
    weights: Weights = {}
    for part, tensors in zip(coefficients.parts, coefficients.numbers, strict=True):
        weights |= part.weights(backbone, bank, tensors)
    return weights


Value = TypeVar("Value")


def grouped(values: Sequence[Value], sizes: Sequence[Sequence]) -> tuple[tuple[Value, ...], ...]:
    """Splits values into consecutive groups that are as long as the sequences in `sizes`."""
    left = iter(values)
    return tuple(tuple(islice(left, len(group))) for group in sizes)


Maker = Callable[[CoefficientSpec], Parametrisation]
_KINDS: dict[str, type[Parametrisation]] = {}
# Value of `granularity` -> the kind that registered it, and the function that makes its object.
_MAKERS: dict[str, tuple[str, Maker]] = {}


def register_parametrisation(
    kind: type[Parametrisation], makers: Mapping[str, Maker] | None = None
) -> None:
    """Makes a parametrisation known to learners and stores.

    - kind: the class, whose attribute `kind` is its name in stores.
    - makers: value of `granularity` -> function that makes the parametrisation from a
      `CoefficientSpec`. It raises InputError for settings that do not fit.

    Raises InputError if another class has registered the name.
    """
    # Compare names: if a module is loaded again, it registers new classes of the same names.
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
    """The inverse of `to_plain`. Raises StoreError for an unregistered kind."""
    parts = []
    for settings in plain:
        # JSON turned tuples into lists. Turn them back: these dataclasses hold no lists.
        fields = {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()}
        if (kind := _KINDS.get(str(fields.pop("kind")))) is None:
            line = f"the parametrisation {settings['kind']!r} is not registered"
            raise StoreError(f"{line}; import what registers it")
        parts.append(kind(**fields))
    return tuple(parts)
