"""One HTML file that shows a demo's results: it opens from the file system and loads nothing.

The figures travel as JSON, once for each palette, beside a copy of plotly.js; a short script draws
those that fit the reader's colour scheme. A content security policy in the page
forbids every load from outside.
"""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from impresslearn.report.demo_figures import accuracy_figure, bytes_figure, coefficients_figure
from impresslearn.report.markup import asset, facts, figures_json
from impresslearn.report.palette import DARK, LIGHT
from impresslearn.report.record import check_demo_record, tasks_of
from impresslearn.report.wording import duration, percent, points, size, times

FIGURES = {
    "accuracy": accuracy_figure,
    "coefficients": coefficients_figure,
    "bytes": bytes_figure,
}


def write_demo_report(results: Mapping[str, Any], path: Path) -> None:
    """Write the demo's results to `path` as one self-contained HTML file of about 5 MB.

    Raises InputError if the record lacks something, OSError if the file cannot be written.
    """
    check_demo_record(results)
    basis, new = len(tasks_of(results, "basis")), len(tasks_of(results, "new"))
    page = Template(asset("demo.html")).substitute(
        title="ImpressLearn demo",
        lead=escape(
            f"{_counted(basis, 'basis task')} with a mask each, then {_counted(new, 'new task')} "
            "that cost a handful of coefficients, over one frozen random network."
        ),
        light=LIGHT.css(),
        dark=DARK.css(),
        style=asset("page.css"),
        tiles="\n".join(_tiles(results["summary"])),
        rows="\n".join(_rows(results)),
        settings=facts("Settings", results["settings"]),
        versions=facts("Versions", results["versions"]),
        figures=figures_json(
            *(
                {name: draw(results, palette) for name, draw in FIGURES.items()}
                for palette in (LIGHT, DARK)
            )
        ),
        plotly=get_plotlyjs(),
        script=asset("page.js"),
    )
    Path(path).write_text(page, encoding="utf-8")


def _tiles(summary: Mapping[str, Any]) -> Iterable[str]:
    mask, new = summary["bytes_per_supsup_mask"], summary["bytes_per_new_task"]
    ratio = times(mask, new)
    tiles = (
        ("New-task accuracy", percent(summary["new_task_accuracy"]), "mean over the new tasks"),
        ("SupSup", percent(summary["supsup_accuracy"]), "a dedicated mask for each task"),
        (
            "Single foreign mask (X)",
            percent(summary["single_mask_accuracy"]),
            "a mask of another task as it is",
        ),
        ("Forgetting", points(summary["forgetting"]), "accuracy that earlier tasks lost"),
        ("Bytes per new task", size(new), "everything that is kept for it"),
        (
            "Bytes per SupSup mask",
            size(mask),
            f"{ratio} a new task" if ratio else "the same network",
        ),
        (
            "Task inference",
            percent(summary["task_inference_accuracy"]),
            "right task, identity not given",
        ),
        ("Time", duration(summary["seconds"]), "for everything on this page"),
    )
    for position, (label, value, note) in enumerate(tiles):
        yield (
            f'<div class="tile{" first" if position == 0 else ""}"><span>{label}</span>'
            f"<b>{value}</b><small>{note}</small></div>"
        )


def _rows(results: Mapping[str, Any]) -> Iterable[str]:
    for role in ("basis", "new"):
        tasks = tasks_of(results, role)
        if not tasks:
            continue
        yield f'<tbody><tr><th colspan="5" scope="rowgroup">{role.capitalize()} tasks</th></tr>'
        for task in tasks:
            cells = (
                str(task["name"]),
                percent(task["accuracy"]),
                percent(task["supsup_accuracy"]),
                percent(task["single_mask_accuracy"]),
                size(task["bytes"]),
            )
            yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        yield "</tbody>"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
