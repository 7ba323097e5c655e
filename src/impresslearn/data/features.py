"""Features kept in place of the inputs that a frozen network computed them from."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from torch import Tensor

from impresslearn.data.examples import Inputs
from impresslearn.errors import InputError


class Features(Inputs):
    """Features of inputs, from `ImpressLearner.features`; indexed, sliced and moved as a tensor.

    - `values`: (n, f) float, what enters the head of each network, side by side.
    - `inputs`: the n prepared inputs behind them.
    - `network`: the fingerprint of the frozen network.
    - `keys`: one for each set of masked weights, in the order of the values.
    - `form`: how raw inputs came, for the history of a first task.
    """

    def __init__(
        self,
        values: Tensor,
        inputs: Tensor | Inputs,
        network: str,
        keys: Sequence[Hashable],
        form: Mapping[str, Any],
    ) -> None:
        super().__init__(values=values)
        self.values, self.inputs = values, inputs
        self.network, self.keys, self.form = network, tuple(keys), form

    def map(self, function: Callable[[Tensor], Tensor]) -> Features:
        """The same features and inputs, with a function applied to each tensor."""
        inputs = self.inputs
        mapped = inputs.map(function) if isinstance(inputs, Inputs) else function(inputs)
        return Features(function(self.values), mapped, self.network, self.keys, self.form)

    def of(self, keys: Sequence[Hashable] | None) -> list[Tensor]:
        """(n, f) under each of these weights. Raises InputError unless all are here."""
        if keys is None or not set(keys) <= set(self.keys):
            raise InputError(
                "these features are not what the task reads: it has weights of its own, or the "
                "features were computed under other masks; give the inputs, or compute them again"
            )
        parts = dict(zip(self.keys, self.values.chunk(len(self.keys), dim=1), strict=True))
        return [parts[key] for key in keys]


def inputs_behind(inputs: Tensor | Inputs) -> Tensor | Inputs:
    """The inputs themselves, also of `Features`."""
    return inputs.inputs if isinstance(inputs, Features) else inputs
