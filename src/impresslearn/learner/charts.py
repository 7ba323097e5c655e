"""Charts that look inside a learner: Altair charts for notebooks and pictures, and a page of them.

`chart.save("usage.svg")` writes a picture.
`Evaluation.chart` and `Comparison.chart` draw accuracies over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Sized
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from impresslearn.checks import check_choice
from impresslearn.errors import InputError
from impresslearn.learner.learner import ImpressLearner
from impresslearn.masks.arithmetic import checked_mask
from impresslearn.masks.bank import MaskBank
from impresslearn.networks.layers import MaskableLayer
from impresslearn.tables import size

if TYPE_CHECKING:
    import altair as alt

MOST_UNITS, MOST_INPUTS = 48, 96
"""The part of a layer's mask that `mask_picture` draws."""
DRAWN_TASKS, DRAWN_MASKS, PICTURES = 60, 120, 2
"""Tasks that are drawn at most, masks beyond which none are, and pictures of single masks."""
LISTED_TASKS = 1000
"""Tasks in the table of a page."""
CELL = 7
TINY = 1e-12
HasMasks = Any
"""A mask, what `train_mask` returns, a `MaskBank`, or what has one, as learners do (`bank_`)."""


def mask_usage(learner: ImpressLearner, tasks: Sequence[str] | None = None) -> alt.TopLevelMixin:
    """Which impressions each task uses: a mask's share of the absolute coefficients.

    Layers count alike. tasks: names, by default those of role "learned". Raises InputError where
    none combines masks.
    """
    if tasks is None:
        tasks = [task.name for task in learner.tasks_.all() if task.role == "learned"]
    rows = []
    for name, layers in _layers_of(learner, tasks):
        used = np.sum([np.abs(each).mean(axis=1) for each in layers], axis=0)
        shares = used / max(used.sum(), TINY)
        of = zip(learner.bank_.names, shares.tolist(), strict=False)
        rows += [{"task": name, "mask": mask, "share": share} for mask, share in of]
    told = {"x": "mask", "y": "task", "value": "share", "title": "Impressions that tasks use"}
    return _heatmap(told, rows)


def task_coefficients(learner: ImpressLearner, task: str) -> alt.TopLevelMixin:
    """The coefficients of a task: of each mask in each layer, the mean over units if they differ.

    Raises InputError where the task combines no masks.
    """
    ((_, layers),) = _layers_of(learner, [task])
    names = [layer.name for layer in learner.backbone.layers]
    rows = [
        {"layer": name, "mask": mask, "coefficient": float(numbers.mean())}
        for name, alpha in zip(names, layers, strict=True)
        for mask, numbers in zip(learner.bank_.names, alpha, strict=False)
    ]
    units = learner.settings.granularity == "unit"
    title = f"Coefficients of {task}" + (", means over units" if units else "")
    return _heatmap({"x": "layer", "y": "mask", "value": "coefficient", "title": title}, rows)


def layer_sparsity(masks: HasMasks) -> alt.TopLevelMixin:
    """The share of zeros in every layer of a mask, or of each of a bank.

    masks: a mask, a bank, or a learner or method that has one. Raises InputError for an empty bank.
    """
    bank = _bank_of(masks)
    rows = [
        {"mask": info.name, "layer": layer.name, "sparsity": 1 - ones / layer.numel}
        for info in bank.infos
        for layer, ones in zip(bank.layers, info.ones, strict=True)
    ]
    if not rows:
        raise InputError("the bank holds no mask; learn a basis task or add masks first")
    told = {"x": "layer", "y": "mask", "value": "sparsity", "title": "Sparsity by layer"}
    return _heatmap(told, rows, (0, 1))


def task_similarity(
    learner: ImpressLearner, tasks: Sequence[str] | None = None
) -> alt.TopLevelMixin:
    """Which tasks combine masks alike: cosine similarity of coefficients, and its dendrogram.

    Masks that came after a task count as coefficients of zero. Clusters are joined by the mean
    distance (1 - similarity) between their members. tasks: names, by default all that combine
    masks. Raises InputError for fewer than two.
    """
    import altair as alt
    from scipy.cluster.hierarchy import dendrogram, linkage
    from scipy.spatial.distance import squareform

    from impresslearn.plotting import COLOURS, styled

    found = dict(_layers_of(learner, tasks))
    if len(found) < 2:
        raise InputError(f"similarity compares two tasks or more, got {len(found)}")
    most = max(len(layers[0]) for layers in found.values())
    flat = np.array([_vector(layers, most) for layers in found.values()])
    similarity = np.clip(flat @ flat.T, -1, 1)
    distance = 1 - similarity
    np.fill_diagonal(distance, 0)
    tree = dendrogram(linkage(squareform(distance, checks=False), "average"), no_plot=True)
    names = list(found)
    order = [names[place] for place in tree["leaves"]]
    rows = [
        {"task": first, "beside": second, "similarity": float(similarity[i, j])}
        for i, first in enumerate(names)
        for j, second in enumerate(names)
    ]
    lines = [
        {"join": number, "step": step, "x": x, "distance": y}
        for number, (xs, ys) in enumerate(zip(tree["icoord"], tree["dcoord"], strict=True))
        for step, (x, y) in enumerate(zip(xs, ys, strict=True))
    ]
    width = max(min(44, 620 / len(order)), 4) * len(order)
    branches = (
        alt.Chart(alt.InlineData(values=lines))
        .mark_line(interpolate="linear", strokeWidth=1.5)
        .encode(
            alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, 10 * len(order)], nice=False)),
            alt.Y("distance:Q", title="distance"),
            detail="join:N",
            order="step:Q",
            color=alt.value(COLOURS["text"]),
        )
        .properties(width=width, height=120)
    )
    shades = alt.Scale(
        domain=[-1, 0, 1],
        range=[COLOURS["negative"], COLOURS["zero"], COLOURS["accent"]],
        interpolate="rgb",
    )
    cells = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_rect()
        .encode(
            alt.X(
                "beside:N",
                sort=order,
                title=None,
                axis=alt.Axis(labelAngle=-45, labelOverlap=False),
            ),
            alt.Y("task:N", sort=order, title=None),
            alt.Color("similarity:Q", scale=shades),
            tooltip=["task:N", "beside:N", alt.Tooltip("similarity:Q", format=".3f")],
        )
        .properties(width=width, height=width)
    )
    both = alt.vconcat(branches, cells, spacing=4)
    said = "Cosine similarity of the coefficients of tasks, and the dendrogram of their distances"
    return styled(both, "Tasks that combine masks alike", [], said)


def mask_picture(
    masks: HasMasks, name: str | None = None, layer: str | None = None
) -> alt.TopLevelMixin:
    """The weights that a mask keeps in a layer: a row an output unit, a column an input of it.

    masks: a mask, or the bank, learner or method that has the one called `name`. layer: its name,
    by default the first one. Of a large layer the first 48 units and 96 inputs are drawn. Raises
    UnknownTaskError for a mask that is not there, InputError for such a layer.
    """
    import altair as alt

    from impresslearn.plotting import COLOURS, styled

    called, mask = _mask_of(masks, name)
    known = list(mask)
    chosen = known[0] if layer is None else check_choice("layer", layer, known)
    ones = mask[chosen]
    matrix = ones.reshape(len(ones), -1)
    units, inputs = matrix.shape
    part = matrix[:MOST_UNITS, :MOST_INPUTS].cpu().numpy()
    rows = [
        {"unit": int(unit), "input": int(place), "kept": bool(part[unit, place])}
        for unit, place in np.ndindex(part.shape)
    ]
    scale = alt.Scale(domain=[False, True], range=[COLOURS["band"], COLOURS["accent"]])
    axis = alt.Axis(labelOverlap=True, ticks=False)
    drawn = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_rect()
        .encode(
            alt.X("input:O", axis=axis, scale=alt.Scale(padding=0.05)),
            alt.Y("unit:O", axis=axis, scale=alt.Scale(padding=0.05)),
            alt.Color("kept:N", scale=scale, legend=None),
        )
        .properties(width=CELL * part.shape[1], height=CELL * part.shape[0])
    )
    share = f"{float(matrix.float().mean()):.1%} of {units:,} × {inputs:,} weights are kept"
    seen = "" if part.shape == matrix.shape else f"the first {len(part)} × {part.shape[1]}"
    title = f"{called} in {chosen}"
    return styled(drawn, title, [share, seen], f"{title}: {share}")


def input_picture(
    masks: HasMasks, name: str | None = None, shape: Sequence[int] | None = None
) -> alt.TopLevelMixin:
    """What a mask reads of the inputs: how many weights of the first layer it keeps at each place.

    masks, name: as of `mask_picture`. shape: of an input, (..., height, width), summed over all but
    the last two; by default a square. A convolution reads every place alike: what is drawn is its
    kernel. Raises InputError for a shape that does not fit.
    """
    import altair as alt

    from impresslearn.plotting import COLOURS, styled

    called, mask = _mask_of(masks, name)
    ones = next(iter(mask.values()))
    count = ones.sum(dim=0).cpu().numpy()
    side = math.isqrt(count.size)
    if shape is None:
        shape = count.shape if count.ndim > 1 else (side, side)
    if len(shape) < 2 or math.prod(shape) != count.size:
        raise InputError(
            f"the first layer reads {count.size:,} values an input; give shape=(..., height, "
            f"width) of as many, got {tuple(shape)}"
        )
    seen = count.reshape(-1, *shape[-2:]).sum(axis=0)
    rows = [{"row": y, "column": x, "kept": int(seen[y, x])} for y, x in np.ndindex(seen.shape)]
    scale = alt.Scale(domainMin=0, range=[COLOURS["band"], COLOURS["accent"]], interpolate="rgb")
    cell = max(min(24, 480 // max(seen.shape)), 4)
    drawn = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_rect()
        .encode(
            alt.X("column:O", axis=None),
            alt.Y("row:O", axis=None),
            alt.Color("kept:Q", scale=scale, title="weights kept"),
            tooltip=["row:O", "column:O", "kept:Q"],
        )
        .properties(width=cell * seen.shape[1], height=cell * seen.shape[0])
    )
    told = f"{np.count_nonzero(seen)} of {seen.size} places are read"
    title = f"What {called[0].lower()}{called[1:]} reads"
    return styled(drawn, title, [told], f"{title}: {told}")


def write_page(learner: ImpressLearner, path: Path | str, title: str = "ImpressLearn") -> Path:
    """Writes what a learner holds as one self-contained HTML file of about 1 MB.

    A table of tasks, and the charts of `il.charts` where the bank is not too large to be drawn.
    Raises InputError for another method's object, and where the file cannot be written.
    """
    from impresslearn.plotting import write_page  # Altair takes a second to import

    _check_learner(learner)
    tasks, bank = learner.tasks_, learner.bank_
    sizes = [task.info().bytes for task in tasks.all()]
    each = f", {size(min(sizes))} to {size(max(sizes))} each" if sizes else ""
    drawn = list(_figures(learner)) if 0 < len(bank) <= DRAWN_MASKS else []
    facts = f"Network: {learner.backbone!r}. Masks: {bank!r}."
    total = f"{size(sum(sizes))} with masks of their own"
    lead = f"tasks: {len(tasks):,}, {total}{each} · masks: {len(bank):,}"
    return write_page(path, title, lead, [(facts, tasks.table(LISTED_TASKS)), *drawn])


def _figures(learner: ImpressLearner) -> Iterator[tuple[str, Any]]:
    """A caption and a chart each."""
    tasks, bank = learner.tasks_, learner.bank_
    if learner.settings.granularity in ("layer", "unit"):
        learned = [task.name for task in tasks.all() if task.role == "learned"]
        if learned:
            yield _caption(learned), mask_usage(learner, learned[:DRAWN_TASKS])
        if len(tasks) > 1:
            yield _caption(tasks), task_similarity(learner, list(islice(tasks, DRAWN_TASKS)))
    yield "", layer_sparsity(bank)
    for name in bank.names[:PICTURES]:
        yield "", mask_picture(bank, name)


def _caption(tasks: Sized) -> str:
    """How many of the tasks are drawn, unless all are."""
    more = len(tasks) > DRAWN_TASKS
    return f"The first {DRAWN_TASKS} of {len(tasks):,} tasks." if more else ""


def _mask_of(masks: HasMasks, name: str | None) -> tuple[str, dict[str, Tensor]]:
    """What to call a mask, and the mask. Raises InputError where it is not clear which one."""
    bank = _bank_of(masks, name)
    if name is None and len(bank) != 1:
        raise InputError(f"say by name which of {len(bank)} masks to draw")
    return ("The mask" if name is None else f"Mask {name}"), bank.mask(name or bank.names[0])


def _bank_of(masks: HasMasks, name: str | None = None) -> MaskBank:
    """A bank as given, or made of a mask, which is called by the name there."""
    mask = getattr(masks, "mask", masks)
    if isinstance(mask, Mapping) and mask:
        mask = checked_mask(mask)
        bank = MaskBank([MaskableLayer(name, tuple(ones.shape)) for name, ones in mask.items()])
        bank.append(name or "mask", mask)
        return bank
    found = getattr(masks, "bank_", masks)
    if not isinstance(found, MaskBank):
        kind = type(masks).__name__
        raise InputError(f"masks must be a mask, a MaskBank, or have one; got {kind}")
    return found


def _check_learner(learner: Any) -> None:
    if not isinstance(learner, ImpressLearner):
        kind = type(learner).__name__
        raise InputError(f"a learner that mixes masks is drawn, an ImpressLearner; got {kind}")


def _vector(layers: Sequence[np.ndarray], masks: int) -> np.ndarray:
    """Coefficients of so many masks as a vector of length 1 in which layers count alike."""
    parts = (np.pad(each, ((0, masks - len(each)), (0, 0))) for each in layers)
    vector = np.concatenate([each.ravel() / each.shape[1] ** 0.5 for each in parts])
    return vector / max(float(np.linalg.norm(vector)), TINY)


def _layers_of(
    learner: ImpressLearner, tasks: Sequence[str] | None
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """The coefficients (N, units) of tasks in each layer; 1 for a task's own mask."""
    _check_learner(learner)
    chosen = [learner.tasks_.learned(name) for name in (learner.tasks_ if tasks is None else tasks)]
    found = ((task.name, learner._state.coefficients(task).alpha) for task in chosen)
    mixed = [(name, alpha) for name, alpha in found if alpha]
    if not mixed:
        why = "their numbers are on weights, or readouts" if chosen else "learn one first"
        raise InputError(f"no task combines masks; {why}")
    for name, alpha in mixed:
        columns = (each.reshape(len(each), -1).cpu().numpy() for each in alpha)
        layers = zip(columns, learner.backbone.layers, strict=True)
        yield name, [np.broadcast_to(each, (len(each), layer.units)) for each, layer in layers]


def _heatmap(
    figure: dict[str, str],
    rows: list[dict[str, Any]],
    bounds: tuple[float, float] | None = None,
) -> alt.TopLevelMixin:
    from impresslearn.plotting import heatmap, styled

    chart = heatmap(rows, figure["x"], figure["y"], figure["value"], bounds=bounds)
    return styled(chart, figure["title"])
