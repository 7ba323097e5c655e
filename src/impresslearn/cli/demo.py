"""`impresslearn demo`: the method on small digits, in half a minute and without a download.

Each task has the same 8x8 digits, rotated by another angle.
"""

import json
import textwrap
from pathlib import Path
from typing import Annotated

from impresslearn.cli import shared
from impresslearn.cli.shared import option
from impresslearn.tables import size

BASIS_TASKS = 5  # each of them trains a mask
NEW_TASKS = 10  # each learns only how to mix the five masks, in about 0.3 kB
INFERENCE_BATCH = 64  # unlabelled digits from which the task is inferred


def demo(
    out: Annotated[
        Path, option("DIR", "Where demo.impress, report.html and results.json go.", file_okay=False)
    ] = Path("demo"),
    seed: Annotated[int, option("N", "The same seed gives the same result.", min=0)] = 0,
) -> None:
    """Learn 5 basis tasks, then 10 new tasks of about 0.3 kB each.

    Rotated 8x8 digits, no download. Writes the store, the numbers and a page with a chart into DIR.

    Example: impresslearn demo --out demo
    """
    import impresslearn as il
    from impresslearn.plotting import line_chart, styled

    out.mkdir(parents=True, exist_ok=True)  # fails before the work if it cannot be written
    stream = il.streams.rotated_digits(tasks=BASIS_TASKS + NEW_TASKS, seed=seed)
    backbone = il.create_backbone("lenet_300_100", num_classes=10, in_features=64, seed=seed)
    # Without a cache, weights are mixed anew for each prediction, so forgetting would be noticed.
    learner = il.ImpressLearner(
        backbone, output_scale=True, precision="int5", seed=seed, progress=False, cache_bytes=0
    )
    # Expected: 92 to 94% on the new tasks, every task found, forgetting zero.
    measured = il.evaluate(learner, stream, basis=BASIS_TASKS, progress=True)
    tasks_found = 0
    for task in stream:
        digits = task.test.inputs[:INFERENCE_BATCH]  # type: ignore[union-attr]  # in memory
        tasks_found += learner.infer_task(digits).best == task.name
    learner.save(out / "demo.impress", overwrite=True)
    keys, share = ("task", "phase", "accuracy", "bytes"), tasks_found / len(stream)
    rows = [{key: row[key] for key in keys} for row in measured.rows()]
    results = {"seed": seed, "tasks": rows, "forgetting": measured.forgetting}
    results["task_inference_accuracy"] = share
    (out / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    most = max(row["bytes"] for row in rows[BASIS_TASKS:])
    lead = f"new tasks: mean accuracy {measured.accuracy:.1%}, at most {size(most)}; forgetting "
    lead += f"{measured.forgetting:.1%}; right task found from {INFERENCE_BATCH} unlabelled digits"
    lines, page = textwrap.wrap(f"{lead}: {share:.0%}", shared.WIDTH), out / "report.html"
    # A basis task has a mask of several kB, so only a logarithmic axis shows both kinds of tasks.
    chart = line_chart(rows, "bytes", "accuracy", "phase", joined=False, log_x=True)
    styled(chart, "ImpressLearn demo", lines).save(page, inline=True)
    shared.print_table(rows)
    for line in [*lines, f"Report: {page}"]:
        shared.echo(line)
