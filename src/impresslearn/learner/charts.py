"""Charts of what a learner holds, for notebooks and pictures.

`chart.save("usage.svg")` writes a picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import check_choice, check_kind
from impresslearn.errors import InputError
from impresslearn.learner.learner import ImpressLearner
from impresslearn.masks.bank import MaskBank, checked_mask

if TYPE_CHECKING:
    import altair as alt

MAX_UNITS, MAX_INPUTS = 48, 96  # of a layer's mask that `mask_picture` draws


def mask_usage(learner: ImpressLearner) -> alt.TopLevelMixin:
    """Which masks each task uses: a mask's share of the absolute coefficients.

    Every layer has the same weight. Raises InputError if no task combines masks.
    """
    from impresslearn.plotting import heatmap, styled  # Altair takes a second to import

    check_kind("learner", learner, ImpressLearner)
    rows = []
    for name, numbers in learner.coefficients_.items():
        alphas = numbers.alpha
        if not alphas:
            continue  # the task has other numbers than coefficients of masks
        by_layer = [alpha.abs().reshape(len(alpha), -1).mean(dim=1) for alpha in alphas]
        usage = torch.stack(by_layer).sum(dim=0)
        shares = usage / usage.sum().clamp_min(1e-12)
        for mask, share in zip(learner.bank_.names, shares.tolist(), strict=False):
            rows.append({"mask": mask, "task": name, "share": share})
    if not rows:
        raise InputError("none of the tasks combines masks; learn one over a bank of masks first")
    return styled(heatmap(rows, "mask", "task", "share"), "Masks that tasks use")


def mask_picture(
    masks: Any, name: str | None = None, layer: str | None = None
) -> alt.TopLevelMixin:
    """The weights that a mask keeps in a layer: one row per output unit, one column per input.

    - masks: a mask, the result of `train_mask`, or the `MaskBank`, learner or method that holds
      the mask called `name`.
    - layer: its name; by default the first. Of a large layer 48 units and 96 inputs are drawn.

    Raises UnknownTaskError for an unknown mask, InputError for an unknown layer.
    """
    title, mask = _mask_of(masks, name)
    chosen = check_choice("layer", next(iter(mask)) if layer is None else layer, list(mask))
    matrix = mask[chosen].reshape(len(mask[chosen]), -1).cpu().numpy()
    note = f"{matrix.mean():.1%} of {matrix.shape[0]:,} × {matrix.shape[1]:,} weights are kept"
    drawn = matrix[:MAX_UNITS, :MAX_INPUTS].astype(int)
    return _picture(drawn, "unit", "input", f"{title} in {chosen}", note)


def input_picture(
    masks: Any, name: str | None = None, shape: Sequence[int] | None = None
) -> alt.TopLevelMixin:
    """What a mask reads of the inputs: the number of first-layer weights it keeps at each place.

    - masks, name: as for `mask_picture`.
    - shape: of an input, (..., height, width); summed over all but the last two. By default a
      square. For a convolution the kernel is drawn, as it reads every place alike.

    Raises InputError for a shape that does not fit.
    """
    title, mask = _mask_of(masks, name)
    count = next(iter(mask.values())).sum(dim=0).cpu().numpy()
    if shape is None:
        side = math.isqrt(count.size)
        shape = count.shape if count.ndim > 1 else (side, side)
    if len(shape) < 2 or math.prod(shape) != count.size:
        raise InputError(
            f"the first layer reads {count.size:,} values per input, and shape={tuple(shape)} has "
            "another number of values; give the shape (..., height, width) of an input"
        )
    counts = count.reshape(-1, *shape[-2:]).sum(axis=0)
    note = f"{np.count_nonzero(counts)} of {counts.size} places are read"
    return _picture(counts, "row", "column", f"Inputs of {title}", note)


def _mask_of(masks: Any, name: str | None) -> tuple[str, Mapping[str, Tensor]]:
    """What to call a mask, and the mask. Raises InputError if it is not clear which one."""
    title = "the mask" if name is None else f"mask {name}"
    mask = getattr(masks, "mask", masks)
    if isinstance(mask, Mapping) and mask:
        return title, checked_mask(mask)
    bank = getattr(masks, "bank_", masks)
    if not isinstance(bank, MaskBank):
        kind = type(masks).__name__
        raise InputError(f"masks must be a learner, a MaskBank or a mask, got {kind}")
    if name is None and len(bank) != 1:
        raise InputError(f"there are {len(bank)} masks; give the name of the one to draw")
    return title, bank.mask(name or bank.names[0])


def _picture(counts: np.ndarray, row: str, column: str, title: str, note: str) -> alt.TopLevelMixin:
    """A square per weight or place, darker where more weights are kept."""
    import altair as alt

    from impresslearn.plotting import COLOURS, styled

    cells = []
    for y, x in np.ndindex(counts.shape):
        cells.append({row: y, column: x, "kept": int(counts[y, x])})
    scale = alt.Scale(domainMin=0, range=[COLOURS["band"], COLOURS["accent"]], interpolate="rgb")
    axis = alt.Axis(labelOverlap=True, labelSeparation=6, labelAngle=0)
    # Shades of a mask need no legend: it keeps a weight or does not.
    legend = alt.Legend(tickMinStep=1) if counts.max() > 1 else None
    chart = alt.Chart(alt.InlineData(values=cells)).mark_rect()
    chart = chart.encode(
        alt.X(f"{column}:O", axis=axis),
        alt.Y(f"{row}:O", axis=axis),
        alt.Color("kept:Q", scale=scale, title="weights kept", legend=legend),
    )
    side = alt.Step(min(max(240 // max(counts.shape), 7), 24))
    chart = chart.properties(width=side, height=side)
    return styled(chart, title, [note], f"{title}: {note}")
