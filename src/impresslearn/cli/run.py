"""`impresslearn run`: one's own stream, network and methods, measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from impresslearn.cli.arguments import AsJson, Device, DryRun, Processes, Quiet
from impresslearn.cli.output import counted, print_json, print_table, say
from impresslearn.optimisation.progress import Progress

if TYPE_CHECKING:
    from impresslearn.experiments.configured_run import RunPlan


def run(
    configuration: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="Stream, backbone, methods and seeds.")
    ],
    device: Device = "cpu",
    processes: Processes = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a configuration's methods on its stream, for each seed, and write the result record.

    A run that was stopped goes on where it stopped. A module that the file names is the user's own
    Python, and is executed. `impresslearn report DIR` draws the record.
    """
    from impresslearn.experiments.configuration import read_configuration
    from impresslearn.experiments.configured_run import plan_run

    plan = plan_run(read_configuration(configuration), device, download=not dry_run)
    if dry_run:
        _print_plan(plan, as_json)
        return
    _run(plan, processes, as_json, quiet)


def _run(plan: "RunPlan", processes: int | None, as_json: bool, quiet: bool) -> None:
    from impresslearn.experiments.configured_run import run_plan
    from impresslearn.experiments.trials import summaries

    missing = len(plan.missing())
    with Progress(not quiet, plan.name).track(max(1, missing)) as advance:
        record = run_plan(plan, processes, lambda job, outcome: advance())
    summary = {
        "name": plan.name,
        "record": str(plan.record_path),
        "stream": plan.stream.name,
        "tasks": len(plan.stream),
        "seeds": plan.configuration.run.seeds,
        "parts_run": missing,
        "methods": summaries(record["rows"]),
    }
    if as_json:
        print_json(summary)
    elif not quiet:
        _print_summary(summary)


def _print_summary(summary: dict[str, Any]) -> None:
    from impresslearn.report.cells import cells_of

    methods = [{k: v for k, v in each.items() if k != "seeds"} for each in summary["methods"]]
    table = cells_of(methods)
    print_table(table.header, table.rows, right=table.header[1:])
    seeds = counted(len(summary["seeds"]), "seed")
    tasks = counted(summary["tasks"], "task")
    say(f"{tasks}, {seeds}, {counted(summary['parts_run'], 'part')} run: {summary['record']}")


def _print_plan(plan: "RunPlan", as_json: bool) -> None:
    missing = {id(part) for part in plan.missing()}
    parts: list[dict[str, Any]] = [
        {**part.columns, "finished": id(part) not in missing} for part in plan.parts
    ]
    if as_json:
        print_json(
            {
                "name": plan.name,
                "record": str(plan.record_path),
                "stream": plan.stream.name,
                "tasks": list(plan.stream.names),
                "parts": parts,
            }
        )
        return
    rows = [
        [part["method"], str(part["seed"]), "finished" if part["finished"] else "to run"]
        for part in parts
    ]
    print_table(["method", "seed", "state"], rows, right=["seed"])
    say(f"{plan.stream.name}: {counted(len(plan.stream), 'task')}; {plan.record_path}")
