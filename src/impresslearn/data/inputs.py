"""Inputs of a network that takes several tensors: dictionaries, or tensors in a row.

`Inputs` stands wherever one tensor (n, ...) does between data and network: it is indexed, split and
moved as that is, and unpacked into arguments in the forward pass alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from impresslearn.errors import InputError


class Inputs:
    """The arguments of a call of the network, tensors with one row an example each.

    Inputs(images, ages) are given in this order, Inputs(input_ids=…, attention_mask=…) by name; a
    dictionary stands for the latter wherever inputs are taken. What they hold is checked there:
    see `as_network_inputs`.
    """

    def __init__(self, /, *tensors: Any, **named: Any) -> None:
        self._tensors: dict[int | str, Tensor] = dict(enumerate(tensors)) | named

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All of them."""
        return tuple(self._tensors.values())

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        """Those without a name, in order."""
        return tuple(each for name, each in self._tensors.items() if isinstance(name, int))

    @property
    def named(self) -> dict[str, Tensor]:
        """Those with a name."""
        return {name: each for name, each in self._tensors.items() if isinstance(name, str)}

    def items(self) -> Iterator[tuple[int | str, Tensor]]:
        """Place or name, and tensor, of each."""
        return iter(self._tensors.items())

    def map(self, function: Callable[[Tensor], Tensor]) -> Inputs:
        """The same arguments, each after a function."""
        made = Inputs()
        made._tensors = {name: function(each) for name, each in self.items()}
        return made

    def clone(self) -> Inputs:
        """The same with a copy of each tensor."""
        return self.map(torch.clone)

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: Any) -> Inputs:
        return self.map(lambda each: each[index])

    def __repr__(self) -> str:
        forms = (
            f"{name}: {tuple(each.shape[1:])} {str(each.dtype).removeprefix('torch.')}"
            for name, each in self.items()
        )
        return f"Inputs({', '.join(forms)})"

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return sum(each.nbytes for each in self.tensors)

    @property
    def device(self) -> torch.device:
        """Where they lie."""
        return self.tensors[0].device

    def to(self, *targets: Any, **options: Any) -> Inputs:
        """As of a tensor; a type among the targets is for floats, and has to be one of theirs."""
        places = [each for each in targets if not isinstance(each, torch.dtype)]
        floats = [each for each in targets if each in places or each.is_floating_point]

        def moved(tensor: Tensor) -> Tensor:
            chosen = floats if tensor.is_floating_point() else places
            return tensor.to(*chosen, **options) if chosen else tensor

        return self.map(moved)

    def split(self, sizes: Sequence[int]) -> list[Inputs]:
        """Parts of so many rows."""
        starts = [sum(sizes[:place]) for place in range(len(sizes))]
        return [self[start : start + size] for start, size in zip(starts, sizes, strict=True)]

    def index_select(self, dim: int, index: Tensor) -> Inputs:
        """As of a tensor; dim is 0."""
        return self.map(lambda each: each.index_select(dim, index))


def one_tensor(inputs: Tensor | Inputs) -> Tensor:
    """Inputs where only one tensor an example will do. Raises InputError for several."""
    if isinstance(inputs, Inputs):
        raise InputError(f"only one tensor an example can be taken here, got {inputs}")
    return inputs
