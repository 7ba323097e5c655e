"""Charts of what a learner holds: Altair charts for notebooks and pictures, and a page of them.

`chart.save("usage.svg")` writes a picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from impresslearn.checks import check_choice
from impresslearn.errors import InputError
from impresslearn.learner.learner import ImpressLearner
from impresslearn.masks.bank import MaskBank, checked_mask
from impresslearn.networks.layers import MaskableLayer
from impresslearn.tables import size

if TYPE_CHECKING:
    import altair as alt

MAX_UNITS, MAX_INPUTS = 48, 96  # of a layer's mask that `mask_picture` draws
PAGE_TASKS, PAGE_MASKS, PAGE_ROWS = 60, 120, 1000  # tasks and masks in charts, rows of a table
HasMasks = Any
"""A mask, the result of `train_mask`, a `MaskBank`, or a learner or method with a `bank_`."""


def mask_usage(learner: ImpressLearner, tasks: Sequence[str] | None = None) -> alt.TopLevelMixin:
    """Which masks each task uses: a mask's share of the absolute coefficients.

    - tasks: names; by default all that are not basis tasks. Every layer has the same weight.

    Raises InputError if none of the tasks combines masks.
    """
    from impresslearn.plotting import heatmap, styled

    if tasks is None:
        tasks = [task.name for task in learner.tasks_.all() if task.role == "learned"]
    rows = []
    for task, layers in _coefficients(learner, tasks).items():
        used = sum(np.abs(alpha).mean(axis=1) for alpha in layers)
        shares = used / max(float(np.sum(used)), 1e-12)
        for mask, share in zip(learner.bank_.names, shares, strict=False):
            rows.append({"mask": mask, "task": task, "share": float(share)})
    return styled(heatmap(rows, "mask", "task", "share"), "Masks that tasks use")


def task_coefficients(learner: ImpressLearner, task: str) -> alt.TopLevelMixin:
    """The coefficient of each mask in each layer of a task; the mean over units if they differ.

    Raises InputError if the task combines no masks.
    """
    from impresslearn.plotting import heatmap, styled

    layers = _coefficients(learner, [task])[task]
    rows = []
    for layer, alpha in zip(learner.backbone.layers, layers, strict=True):
        for mask, values in zip(learner.bank_.names, alpha, strict=False):
            coefficient = float(values.mean())
            rows.append({"layer": layer.name, "mask": mask, "coefficient": coefficient})
    return styled(heatmap(rows, "layer", "mask", "coefficient"), f"Coefficients of {task}")


def layer_sparsity(masks: HasMasks) -> alt.TopLevelMixin:
    """The share of zeros in every layer of a mask, or of each mask of a bank.

    Raises InputError if there is no mask.
    """
    from impresslearn.plotting import heatmap, styled

    bank = _bank_of(masks)
    rows = []
    for info in bank.infos:
        for layer, ones in zip(bank.layers, info.ones, strict=True):
            zeros = 1 - ones / layer.numel
            rows.append({"layer": layer.name, "mask": info.name, "sparsity": zeros})
    if not rows:
        raise InputError("the bank holds no mask; learn a basis task or add masks first")
    chart = heatmap(rows, "layer", "mask", "sparsity", bounds=(0, 1))
    return styled(chart, "Sparsity by layer")


def task_similarity(
    learner: ImpressLearner, tasks: Sequence[str] | None = None
) -> alt.TopLevelMixin:
    """Cosine similarity of the tasks' coefficients; similar tasks stand side by side.

    - tasks: names; by default all that combine masks. Masks that a task does not use count as
      coefficients of zero, and every layer has the same weight.

    Raises InputError for fewer than two tasks.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage

    from impresslearn.plotting import heatmap, styled

    found = _coefficients(learner, learner.tasks_ if tasks is None else tasks)
    if len(found) < 2:
        raise InputError(f"similarity compares at least two tasks, got {len(found)}")
    num_masks = max(len(layers[0]) for layers in found.values())
    vectors = np.array([_vector(layers, num_masks) for layers in found.values()])
    similarity = np.clip(vectors @ vectors.T, -1, 1)
    names = list(found)
    rows = []
    order = leaves_list(linkage(vectors, "average"))
    for i, j in product(order, order):
        pair = {"other": names[j], "task": names[i], "similarity": float(similarity[i, j])}
        rows.append(pair)
    chart = heatmap(rows, "other", "task", "similarity", bounds=(-1, 1))
    return styled(chart, "Tasks that combine masks alike")


def mask_picture(
    masks: HasMasks, name: str | None = None, layer: str | None = None
) -> alt.TopLevelMixin:
    """The weights that a mask keeps in a layer: one row per output unit, one column per input.

    - masks: a mask, or the bank, learner or method that holds the mask called `name`.
    - layer: its name; by default the first. Of a large layer 48 units and 96 inputs are drawn.

    Raises UnknownTaskError for an unknown mask, InputError for an unknown layer.
    """
    title, mask = _mask_of(masks, name)
    chosen = check_choice("layer", next(iter(mask)) if layer is None else layer, list(mask))
    matrix = mask[chosen].reshape(len(mask[chosen]), -1).cpu().numpy()
    rows = _cells(matrix[:MAX_UNITS, :MAX_INPUTS].astype(int), "unit", "input")
    note = f"{matrix.mean():.1%} of {matrix.shape[0]:,} × {matrix.shape[1]:,} weights are kept"
    return _picture(rows, "unit", "input", f"{title} in {chosen}", note)


def input_picture(
    masks: HasMasks, name: str | None = None, shape: Sequence[int] | None = None
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
    return _picture(_cells(counts, "row", "column"), "row", "column", f"Inputs of {title}", note)


def write_page(learner: ImpressLearner, path: Path | str, title: str = "ImpressLearn") -> Path:
    """Writes a table of the tasks and the charts of `il.charts` as one HTML file.

    Raises InputError for an object of another method, and if the file cannot be written.
    """
    from impresslearn.plotting import write_page  # Altair takes a second to import

    _check_learner(learner)
    tasks, bank = learner.tasks_, learner.bank_
    total = sum(task.info().bytes for task in tasks.all())
    lead = f"tasks: {len(tasks):,}, {size(total)} with their own masks · masks: {len(bank):,}"
    parts: list[tuple[str, Any]] = [(repr(learner.backbone), tasks.table(PAGE_ROWS))]
    if 0 < len(bank) <= PAGE_MASKS:
        parts += [("", chart) for chart in _page_charts(learner)]
    return write_page(path, title, lead, parts)


def _page_charts(learner: ImpressLearner) -> Iterator[alt.TopLevelMixin]:
    if learner.settings.granularity in ("layer", "unit"):
        learned = [task.name for task in learner.tasks_.all() if task.role == "learned"]
        if learned:
            yield mask_usage(learner, learned[:PAGE_TASKS])
        if len(learner.tasks_) > 1:
            yield task_similarity(learner, list(learner.tasks_)[:PAGE_TASKS])
    yield layer_sparsity(learner)


def _mask_of(masks: HasMasks, name: str | None) -> tuple[str, dict[str, Tensor]]:
    """What to call a mask, and the mask. Raises InputError if it is not clear which one."""
    bank = _bank_of(masks, name)
    if name is None and len(bank) != 1:
        raise InputError(f"there are {len(bank)} masks; give the name of the one to draw")
    return ("the mask" if name is None else f"mask {name}"), bank.mask(name or bank.names[0])


def _bank_of(masks: HasMasks, name: str | None = None) -> MaskBank:
    """The bank of an object, or a bank that holds only the mask that was given."""
    mask = getattr(masks, "mask", masks)
    if isinstance(mask, Mapping) and mask:
        mask = checked_mask(mask)
        bank = MaskBank([MaskableLayer(layer, tuple(ones.shape)) for layer, ones in mask.items()])
        bank.append(name or "mask", mask)
        return bank
    held = getattr(masks, "bank_", masks)
    if not isinstance(held, MaskBank):
        kind = type(masks).__name__
        raise InputError(f"masks must be a mask, a MaskBank, or have a bank_; got {kind}")
    return held


def _check_learner(learner: Any) -> None:
    if not isinstance(learner, ImpressLearner):
        raise InputError(f"charts need an ImpressLearner, got {type(learner).__name__}")


def _coefficients(learner: ImpressLearner, tasks: Any) -> dict[str, list[np.ndarray]]:
    """Coefficients (N, units) of each layer, by task; a basis task has 1 for its own mask."""
    _check_learner(learner)
    combined = {}
    for name in tasks:
        alpha = learner._store.coefficients(learner.tasks_.learned(name)).alpha
        if alpha:
            combined[name] = [
                np.broadcast_to(values.reshape(len(values), -1).cpu(), (len(values), layer.units))
                for values, layer in zip(alpha, learner.backbone.layers, strict=True)
            ]
    if not combined:
        raise InputError("none of the tasks combines masks; learn one over a bank of masks first")
    return combined


def _vector(layers: Sequence[np.ndarray], num_masks: int) -> np.ndarray:
    """Coefficients as a vector of length 1 in which every layer has the same weight."""
    parts = []
    for alpha in layers:
        padded = np.pad(alpha, ((0, num_masks - len(alpha)), (0, 0)))
        parts.append(padded.ravel() / alpha.shape[1] ** 0.5)
    vector = np.concatenate(parts)
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def _cells(matrix: np.ndarray, row: str, column: str) -> list[dict[str, Any]]:
    return [{row: y, column: x, "kept": int(matrix[y, x])} for y, x in np.ndindex(matrix.shape)]


def _picture(
    rows: list[dict[str, Any]], row: str, column: str, title: str, note: str
) -> alt.TopLevelMixin:
    """A square of seven pixels per weight or place, darker where more weights are kept."""
    import altair as alt

    from impresslearn.plotting import COLOURS, styled

    scale = alt.Scale(domainMin=0, range=[COLOURS["band"], COLOURS["accent"]], interpolate="rgb")
    axis = alt.Axis(labelOverlap=True)
    chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_rect()
        .encode(
            alt.X(f"{column}:O", axis=axis),
            alt.Y(f"{row}:O", axis=axis),
            alt.Color("kept:Q", scale=scale, title="weights kept"),
        )
        .properties(width=alt.Step(7), height=alt.Step(7))
    )
    return styled(chart, title, [note], f"{title}: {note}")
