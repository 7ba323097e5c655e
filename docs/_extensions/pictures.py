"""Pictures of masks, banks and coefficients, drawn from a learner that the build trains.

    ```{picture} bank
    What the picture shows.
    ```

They are SVG inside the page, coloured by the page's own variables (`site.css`), so that they follow
its light and dark theme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

import torch
from docutils import nodes
from outputs import code_version
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from torch import Tensor

import impresslearn as il

ROWS, COLUMNS, CELL = 16, 24, 6
"""The part of the first layer that is drawn: units, weights of each; and a weight's size."""
WIDTH, HEIGHT = COLUMNS * CELL, ROWS * CELL
STEPS = 4
"""Shades of either sign."""


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True}


class Picture(SphinxDirective):
    """A picture with its caption."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        name, caption = self.arguments[0], " ".join(self.content)
        kept = Path(self.env.doctreedir).parent / "pictures" / f"{name}-{code_version()}.svg"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(PICTURES[name](), encoding="utf-8")
        svg = kept.read_text(encoding="utf-8").replace("{label}", escape(caption, quote=True))
        figure = nodes.container(classes=["picture"])
        figure += nodes.raw("", svg, format="html")
        figure += nodes.paragraph("", "", *self.parse_inline(caption)[0], classes=["caption"])
        return [figure]


@lru_cache
def learned() -> tuple[il.ImpressLearner, str]:
    """A learner of four basis tasks and two more on turned digits, and the name of the first."""
    stream = il.streams.rotated_digits(tasks=6, seed=0)
    backbone = il.create_backbone("lenet_300_100", num_classes=10, in_features=64, seed=0)
    learner = il.ImpressLearner(backbone, sparsity=0.8, output_scale=False, progress=False)
    for task in stream[:4]:
        learner.learn_basis(task.name, task.train)
    for task in stream[4:]:
        learner.learn_task(task.name, task.train)
    return learner, stream[4].name


def mask() -> str:
    """Weights, a mask, and the weights that it keeps."""
    learner, _ = learned()
    layer = learner.backbone.layers[0].name
    weights = learner.backbone.weights[layer]
    ones = learner.bank_.mask(learner.bank_.names[0])[layer]
    panels = [
        ("weights W, frozen", _cells(weights)),
        ("mask M", _cells(ones.float(), "one")),
        ("W ⊙ M", _cells(weights * ones)),
    ]
    return _row(panels, ["⊙", "="])


def bank() -> str:
    """The masks of a bank with a task's coefficients, and the mixture that these make."""
    learner, task = learned()
    layer = learner.backbone.layers[0].name
    masks = [learner.bank_.mask(name)[layer] for name in learner.bank_.names]
    alphas = learner.coefficients_[task].alpha[0].flatten()
    weights = learner.backbone.weights[layer]
    mixture = weights * sum(alpha * ones for alpha, ones in zip(alphas, masks, strict=True))
    panels = [
        (f"{float(alpha):+.2f} × M{number}".replace("-", "−"), _cells(ones.float(), "one"))
        for number, (alpha, ones) in enumerate(zip(alphas, masks, strict=True), 1)
    ]
    panels.append(("W ⊙ sum of these", _cells(mixture)))
    return _row(panels, ["+", "+", "+", "→"], wrap=2)


def coefficients() -> str:
    """Every coefficient of a task: a bar a mask, a group a layer."""
    learner, task = learned()
    alphas = learner.coefficients_[task].alpha
    largest = max(float(each.abs().max()) for each in alphas)
    bar, gap, top, middle = 22, 40, 24, 90
    parts, left = [], 30.0
    for number, values in enumerate((each.tolist() for each in alphas), 1):
        width = len(values) * bar
        parts.append(_text(left + width / 2, top - 8, f"layer {number}"))
        parts.append(f'<path class="axis" d="M{left - 6} {middle}H{left + width + 6}"/>')
        for place, value in enumerate(values):
            height = 55 * abs(value) / largest
            y = middle - height if value > 0 else middle
            sign = "plus" if value > 0 else "minus"
            x = left + place * bar + 3
            parts.append(
                f'<rect class="{sign}" x="{x:.1f}" y="{y:.1f}" width="{bar - 6}" '
                f'height="{height:.1f}"><title>{value:.3f}</title></rect>'
            )
            parts.append(_text(x + bar / 2 - 3, 162, f"M{place + 1}", "small"))
        left += width + gap
    return _svg(left, 172, parts)


def sizes() -> str:
    """Squares whose areas are bytes: the network, a mask of it, a task over the bank."""
    learner, task = learned()
    shown = [
        ("the network", 4 * learner.backbone.num_parameters),
        ("a mask", learner.tasks_[learner.bank_.names[0]].breakdown["mask"]),
        ("a task", learner.tasks_[task].bytes),
    ]
    scale = 180 / shown[0][1] ** 0.5
    parts, left = [], 10.0
    for word, size in shown:
        side = scale * size**0.5
        room = max(side, 110)
        x = left + (room - side) / 2
        parts.append(
            f'<rect class="one" x="{x:.1f}" y="{190 - side:.1f}" width="{side:.1f}" '
            f'height="{side:.1f}"/>'
        )
        parts.append(_text(left + room / 2, 208, word))
        said = f"{size:,} bytes" if size < 1000 else f"{size / 1e3:,.1f} kB"
        parts.append(_text(left + room / 2, 224, said, "small"))
        left += room + 30
    return _svg(left - 20, 232, parts)


def digits() -> str:
    """The same digits in several tasks, each turned by another angle: a row for each task."""
    stream = il.streams.rotated_digits(tasks=4, seed=0)
    side, gap, left = 6, 14, 110
    parts = []
    for row, task in enumerate(stream):
        top = row * (8 * side + gap)
        parts.append(_text(left / 2, top + 4 * side + 5, task.name.replace("-", " ") + "°"))
        for place, image in enumerate(task.train.inputs[:8]):
            levels = image.reshape(8, 8)
            levels = (levels - levels.min()) / (levels.max() - levels.min())
            for y, x in (levels > 0.1).nonzero().tolist():
                at = left + place * (8 * side + gap) + x * side
                parts.append(
                    f'<rect class="one" x="{at}" y="{top + y * side}" width="{side}" '
                    f'height="{side}" opacity="{float(levels[y, x]):.2f}"/>'
                )
    return _svg(left + 8 * (8 * side + gap), 4 * (8 * side + gap), parts)


PICTURES: dict[str, Callable[[], str]] = {
    "mask": mask, "bank": bank, "coefficients": coefficients, "sizes": sizes, "digits": digits,
}  # fmt: skip


def _cells(values: Tensor, positive: str = "plus") -> list[str]:
    """A path for each shade; zeros stay empty."""
    # Where a mask keeps little the corner of the matrix may be bare: the busiest part is shown.
    shown = values[:ROWS, 16 : 16 + COLUMNS].detach()
    largest = float(shown.abs().max()) or 1.0
    shades = torch.ceil(shown.abs() / largest * STEPS - 1e-4).int() * shown.sign().int()
    paths = []
    for shade in [each for each in range(-STEPS, STEPS + 1) if each]:
        places = (shades == shade).nonzero().tolist()
        if places:
            lines = "".join(
                f"M{x * CELL} {y * CELL}h{CELL - 1}v{CELL - 1}h-{CELL - 1}z" for y, x in places
            )
            sign = positive if shade > 0 else "minus"
            opacity = abs(shade) / STEPS
            paths.append(f'<path class="{sign}" opacity="{opacity:g}" d="{lines}"/>')
    return paths


def _row(panels: Sequence[tuple[str, list[str]]], between: Sequence[str], wrap: int = 4) -> str:
    """Panels in rows, with a sign between each and the next."""
    gap, label = 36, 24
    parts: list[str] = []
    for number, (title, cells) in enumerate(panels):
        x = 4 + (number % wrap) * (WIDTH + gap)
        y = label + (number // wrap) * (HEIGHT + label + 14)
        parts.append(_text(x + WIDTH / 2, y - 8, title))
        parts.append(f'<g transform="translate({x} {y})">')
        parts.append(
            f'<rect class="frame" x="-2" y="-2" width="{WIDTH + 3}" height="{HEIGHT + 3}"/>'
        )
        parts += [*cells, "</g>"]
        if number < len(between):
            parts.append(_text(x + WIDTH + gap / 2, y + HEIGHT / 2 + 6, between[number], "sign"))
    rows = -(-len(panels) // wrap)
    width = min(wrap, len(panels)) * (WIDTH + gap) - (gap if len(panels) <= wrap else 0) + 8
    return _svg(width, rows * (HEIGHT + label + 14), parts)


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def _svg(width: float, height: float, parts: Sequence[str] | Iterator[str]) -> str:
    # As wide as drawn at most: a narrow page shrinks it, a wide one does not blow it up.
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" style="max-width: {width * 1.25:g}px" role="img" '
        f'aria-label="{{label}}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
