"""The bank of masks: named binary masks with one bit per weight, to which masks are only added.

Masks in a bank are never changed, reordered or removed. So the first n masks always stay the same,
and coefficients learned over n masks stay valid when the bank grows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import check_name, did_you_mean, shown
from impresslearn.data.labels import some
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.kernels import pack, popcount, row_bytes, unpack
from impresslearn.masks.codec import encode_mask
from impresslearn.networks import Backbone
from impresslearn.networks.layers import MaskableLayer, checked_layers
from impresslearn.tables import SHOWN, remaining, table_of


@dataclass(frozen=True)
class MaskInfo:
    """Where a mask comes from.

    - `name`: the mask's name, unique in its bank.
    - `source`: "edge_popup", "random" for any drawn mask, or "given" for one that the caller made.
    - `ones`: the number of ones in each layer.
    - `recipe`: the settings with which the mask was trained or drawn.
    - `coded`: the mask as bytes for the store; None until they are first needed.
    """

    name: str
    source: str
    ones: tuple[int, ...]
    recipe: dict[str, Any] = field(default_factory=dict)
    coded: bytes | None = field(default=None, compare=False, repr=False)


# A mask's origin and its packed bits, (units, row_bytes) uint8 per layer.
PackedMask = tuple[MaskInfo, Sequence[Tensor]]


def packed_mask(
    name: str,
    mask: Mapping[str, Tensor],
    layers: Sequence[MaskableLayer],
    source: str = "given",
    recipe: Mapping[str, Any] | None = None,
) -> PackedMask:
    """Packs a mask (layer name -> booleans of the weight's shape) for a bank."""
    packed = [pack(mask[layer.name].reshape(layer.units, layer.fan_in)) for layer in layers]
    ones = tuple(int(popcount(bits.unsqueeze(0))[0]) for bits in packed)
    return MaskInfo(name, source, ones, dict(recipe or {})), packed


def coded_mask(mask: PackedMask, layers: Sequence[MaskableLayer]) -> PackedMask:
    """The same mask with `coded` bytes. Coding is slow and done only once per mask."""
    info, packed = mask
    if info.coded is None:
        pairs = zip(packed, layers, strict=True)
        rows = [unpack(bits.cpu(), layer.fan_in).numpy() for bits, layer in pairs]
        info = replace(info, coded=encode_mask(rows))
    return info, packed


@dataclass(frozen=True, repr=False)
class Overlap:
    """The Jaccard index |A∩B| / |A∪B| of each pair of masks of a bank; NaN for two empty masks.

    - `measured`: (N, N), over all layers together.
    - `expected`: (N, N), the value for independent masks with the same numbers of ones per layer.
    - `by_layer`, `expected_by_layer`: (layers, N, N), the same for each layer.
    - `names`: the names of the masks, in the order of rows and columns.
    """

    measured: Tensor
    expected: Tensor
    by_layer: Tensor
    expected_by_layer: Tensor
    names: tuple[str, ...]


class MaskBank:
    """N named binary masks over the maskable layers of one backbone, one bit per weight.

    A new bank is empty. `append` adds a mask, and a learner adds the masks that it trains.

    - `layers`: the layers of the network, `backbone.layers`.
    - `device`: the device that holds the bits.

    The attribute `trained_on` is the fingerprint of the weights with which the bank's masks were
    trained, or None without trained masks. Raises InputError unless `layers` are layers.
    """

    # Autograd rejects tensors made in inference mode, which the caller may be in.
    @torch.inference_mode(False)
    def __init__(self, layers: Sequence[MaskableLayer], device: torch.device | str = "cpu") -> None:
        self.layers = checked_layers(layers)
        try:
            self.device = torch.device(device)
        except (RuntimeError, TypeError):
            raise InputError(f"device {device} cannot be used; use cpu, or cuda on a GPU") from None
        self.trained_on: str | None = None
        self._infos: list[MaskInfo] = []
        self._position: dict[str, int] = {}
        shapes = [(0, layer.units, row_bytes(layer.fan_in)) for layer in self.layers]
        self._storage = [torch.zeros(*s, dtype=torch.uint8, device=device) for s in shapes]

    def __len__(self) -> int:
        return len(self._infos)

    def __contains__(self, name: object) -> bool:
        return name in self._position

    def __repr__(self) -> str:
        packed = sum(self.bits(number).numel() for number in range(len(self.layers)))
        return f"MaskBank({len(self)} masks, {len(self.layers)} layers, {packed:,} bytes packed)"

    def _repr_html_(self) -> str:
        rows, weights = [], sum(layer.numel for layer in self.layers)
        for info in self._infos[:SHOWN]:
            density = sum(info.ones) / weights
            rows.append({"mask": info.name, "source": info.source, "density": density})
        return table_of(rows, repr(self), remaining(len(self))).html()

    @property
    def names(self) -> tuple[str, ...]:
        """The masks' names, in the order they were added."""
        return tuple(info.name for info in self._infos)

    @property
    def infos(self) -> tuple[MaskInfo, ...]:
        """The source, the number of ones per layer and the recipe of each mask, in order."""
        return tuple(self._infos)

    def index(self, name: str) -> int:
        """The position of a mask. Raises UnknownTaskError for a name that is not in the bank."""
        if name not in self:
            hint = did_you_mean(name, self.names) or f": {', '.join(self.names[:3]) or 'none'}"
            raise UnknownTaskError(f"no mask named {name!r} in the bank of {len(self)}{hint}")
        return self._position[name]

    def append(self, name: str, mask: Mapping[str, Tensor]) -> MaskInfo:
        """Adds a mask and returns its `MaskInfo`. An error leaves the bank unchanged.

        - `name`: unique in the bank.
        - `mask`: layer name -> booleans of the weight's shape.

        Raises InputError for a taken name, missing or unknown layers, wrong shapes or dtypes.
        """
        name, mask = check_name(name, "a mask's name"), checked_mask(mask, self.layers)
        added = packed_mask(name, mask, self.layers)
        self.adopt(*added)
        return added[0]

    def adopt(self, info: MaskInfo, packed: Sequence[Tensor]) -> None:
        """Adds a packed mask, on any device. Raises InputError for a taken name or other layers."""
        if info.name in self:
            raise InputError(f"the bank holds a mask named {info.name!r}; choose another name")
        shapes = [tuple(bits.shape) for bits in packed]
        if shapes != [tuple(storage.shape[1:]) for storage in self._storage]:
            raise InputError(f"the packed mask {info.name!r} belongs to other layers")
        if len(self) == len(self._storage[0]):
            # It grows by 1/16, so that less than 7% of its storage is unused.
            capacity = len(self) + max(1, len(self) // 16)
            # Allocate the larger storage of all layers first. If memory runs out, nothing changed.
            with torch.inference_mode(False):
                pairs = [(old, old.new_zeros((capacity, *old.shape[1:]))) for old in self._storage]
                for old, larger in pairs:
                    larger[: len(old)] = old
            self._storage = [larger for _, larger in pairs]
        for storage, bits in zip(self._storage, packed, strict=True):
            # `.data` keeps the tensor's version counter. If it changed, autograd would refuse the
            # backward pass of another thread that is learning from earlier rows.
            storage.data[len(self)] = bits
        # The name comes after the bits, so that no other thread sees a name without bits.
        self._position[info.name] = len(self)
        self._infos.append(info)

    def bits(self, layer: int, count: int | None = None) -> Tensor:
        """Packed masks of one layer, (count, units, row_bytes) uint8, eight weights per byte.

        - `count`: the first masks only; all masks by default.
        """
        return self._storage[layer][: len(self) if count is None else count]

    def packed(self, position: int) -> PackedMask:
        """The mask at a position, in the form that `adopt` takes; the bits are not copied."""
        return self._infos[position], [storage[position] for storage in self._storage]

    def mask(self, name: str) -> dict[str, Tensor]:
        """One mask, unpacked: layer name -> booleans of the weight's shape."""
        position = self.index(name)
        return {
            layer.name: unpack(bits[position], layer.fan_in).reshape(layer.shape)
            for layer, bits in zip(self.layers, self._storage, strict=True)
        }

    def to(self, device: torch.device | str) -> "MaskBank":
        """The same masks on another device, as a new bank."""
        moved = MaskBank(self.layers, device)
        moved.trained_on = self.trained_on
        moved._infos, moved._position = list(self._infos), dict(self._position)
        moved._storage = [bits[: len(self)].to(device) for bits in self._storage]
        return moved

    def check_network(self, backbone: Backbone) -> None:
        """Raises InputError if the network has other layers, or other weights than `trained_on`."""
        if self.layers != backbone.layers:
            names = {layer.name for layer in {*self.layers} ^ {*backbone.layers}}
            line = f"the layers of the bank and the network differ in {min(names, default='order')}"
            raise InputError(f"{line}; make a bank from backbone.layers, as il.random_bank does")
        if self.trained_on and self.trained_on != backbone.fingerprint(backbone.weights):
            line = "the bank's masks were trained on other weights, perhaps of another seed or init"
            raise InputError(f"{line}; give that network, or append them to a new MaskBank")

    def overlap(self) -> Overlap:
        """The Jaccard index of each pair of masks, and its value for independent masks."""
        if len(self) < 2:
            raise InputError(f"overlap compares at least two masks, got {len(self)}")
        shared, chance, total = [], [], []
        for number, layer in enumerate(self.layers):
            bits = self.bits(number)
            shared.append(torch.stack([popcount(bits & packed) for packed in bits]).double())
            ones = shared[-1].diagonal()
            chance.append(torch.outer(ones, ones) / layer.numel)
            total.append(ones[:, None] + ones)
        overlaps = []
        for both in (torch.stack(shared), torch.stack(chance)):
            either = torch.stack(total) - both
            overlaps.append((both.sum(0) / either.sum(0), both / either))
        (measured, by_layer), (expected, expected_by_layer) = overlaps
        return Overlap(measured, expected, by_layer, expected_by_layer, self.names)


def checked_mask(mask: Any, layers: Collection[MaskableLayer] = ()) -> dict[str, Tensor]:
    """A mask of tensors or arrays, or a `TrainedMask`, as tensors; it must cover `layers`."""
    mask = getattr(mask, "mask", mask)
    if not isinstance(mask, Mapping) or not mask:
        line = "a mask maps layer names to tensors of booleans, as bank.mask(name) does"
        raise InputError(f"{line}, got {shown(mask)}")
    shapes: dict[Any, Any] = {layer.name: layer.shape for layer in layers}
    odd = [name for name in [*mask, *shapes] if name not in shapes or name not in mask]
    if shapes and odd:
        line = f"a mask must have the layers {some([*shapes])}, and no others"
        raise InputError(f"{line}; it {'lacks' if odd[0] in shapes else 'has'} {odd[0]!r}")
    checked = {}
    for name, ones in mask.items():
        # Copied, because torch warns about tensors that share a read-only array.
        tensor = torch.from_numpy(ones.copy()) if isinstance(ones, np.ndarray) else ones
        kind = getattr(tensor, "dtype", type(ones).__name__)
        if kind != torch.bool:
            raise InputError(f"a mask must be of booleans; {name} is {kind}; use .bool()")
        shape = tuple(tensor.shape)
        if (wanted := shapes.get(name, shape)) != shape:
            raise InputError(f"the mask of {name} must have the shape {wanted}, got {shape}")
        checked[name] = tensor
    return checked
