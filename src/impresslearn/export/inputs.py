"""Preprocessing as nodes of an exported graph, made of torch's functions only.

The arithmetic is that of `Preprocessing.apply`, so that raw inputs give the learner's logits bit
for bit. What the graph cannot take is refused by its own assertions: torch would otherwise compute
something else without a word.
"""

from __future__ import annotations

import math
import operator

import torch
from torch import fx

from impresslearn.data.preprocessing import Preprocessing
from impresslearn.networks import Backbone


def add_preprocessing(
    module: fx.GraphModule, raw: fx.Node, preprocessing: Preprocessing, backbone: Backbone
) -> fx.Node:
    """Adds the preprocessing of `raw` where the graph inserts now; returns its result.

    The numbers to normalise by become buffers that are no part of the module's state dict.
    """
    graph = module.graph
    _refuse_other_numbers(graph, raw, preprocessing)
    ready = graph.call_method("to", (raw, torch.float32))
    if preprocessing.pixels:
        ready = graph.call_function(operator.truediv, (ready, 255))
    if preprocessing.shape is not None:
        shape = tuple(preprocessing.shape)
        _refuse_other_shapes(graph, raw, shape)
        ready = graph.call_method("reshape", (ready, -1, *shape))
    if preprocessing.normalises:
        dimensions = graph.call_function(getattr, (ready, "ndim"))
        after = graph.call_function(
            operator.mul, ([1], graph.call_function(operator.sub, (dimensions, 2)))
        )
        spread = graph.call_function(operator.add, ([-1], after))
        for name, function in (("mean", operator.sub), ("std", operator.truediv)):
            buffer, numbers = f"preprocessing_{name}", getattr(preprocessing, name)
            kept = torch.tensor(numbers, device=backbone.device).reshape(-1)
            module.register_buffer(buffer, kept, persistent=False)
            along = graph.call_method("reshape", (graph.get_attr(buffer), spread))
            ready = graph.call_function(function, (ready, along))
    return graph.call_method("to", (ready, backbone.dtype))


def _refuse_other_numbers(graph: fx.Graph, raw: fx.Node, preprocessing: Preprocessing) -> None:
    if preprocessing.pixels:
        dtype = graph.call_function(getattr, (raw, "dtype"))
        fits = graph.call_function(operator.eq, (dtype, torch.uint8))
        wanted = "the pixels of raw inputs as uint8"
    else:
        fits = graph.call_method("is_floating_point", (raw,))
        wanted = "raw inputs as floats"
    graph.call_function(torch._assert, (fits, f"expected {wanted}"))


def _refuse_other_shapes(graph: fx.Graph, raw: fx.Node, shape: tuple[int, ...]) -> None:
    """Flat inputs may be folded, and sizes of 1 come and go; anything else would be shuffled."""
    known = {shape, (math.prod(shape),), tuple(size for size in shape if size > 1)}
    sizes = graph.call_function(getattr, (raw, "shape"))
    own = graph.call_function(operator.getitem, (sizes, slice(1, None)))
    fits = graph.call_function(operator.contains, (sorted(known), own))
    line = f"expected raw inputs of shape (n, {', '.join(map(str, shape))}), or flat"
    graph.call_function(torch._assert, (fits, line))
