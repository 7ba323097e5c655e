"""Commands that measure: `demo`, `run`, `reproduce` and `bench`; `report` draws the records."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from impresslearn.cli.arguments import AsJson, Device, Quiet, option
from impresslearn.cli.output import (
    answer,
    complain,
    counted,
    print_json,
    print_rich,
    print_table,
    remark,
    say,
)
from impresslearn.errors import InputError, MissingDataError
from impresslearn.files import write_file
from impresslearn.training.progress import Progress

if TYPE_CHECKING:
    from impresslearn.experiments.configured_run import RunPlan
    from impresslearn.experiments.reproduce import Run
    from impresslearn.experiments.targets import Target

Processes = Annotated[
    int | None, option("N", "Jobs at a time; by default as many as cores.", min=1)
]
DryRun = Annotated[bool, option(None, "Check, and list what would run.", "--dry-run")]


def demo(
    out: Annotated[Path, option("DIR", "Where results.json and report.html go.")] = Path("demo"),
    seed: Annotated[int, option("N", "The same seed gives the same result.", min=0)] = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn 5 basis tasks, then 10 new tasks that cost a handful of numbers each.

    Rotated 8x8 digits, no download. Compares ImpressLearn with one dedicated mask a task (SupSup)
    and with a single foreign mask, and writes DIR/results.json and DIR/report.html.

    Example: impresslearn demo --out demo
    """
    from impresslearn.experiments.demo import run_demo
    from impresslearn.experiments.record import check_folder, write_record
    from impresslearn.report import parse_record, printable_of, write_report

    check_folder(out)  # before the work, not after it
    results = run_demo(seed=seed, progress=not quiet)
    record, page = parse_record(results), out / "report.html"
    write_record(results, out / "results.json")
    write_report([record], page, title="ImpressLearn demo")
    if as_json:
        print_json(results)
    elif not quiet:
        print_rich(printable_of(record))
        say(f"Report: {page}")


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

    Example: impresslearn run digits.toml
    """
    from impresslearn.experiments.configuration import read_configuration
    from impresslearn.experiments.configured_run import plan_run, run_plan
    from impresslearn.experiments.trials import summaries
    from impresslearn.report.cells import cells_of

    plan = plan_run(read_configuration(configuration), device, download=not dry_run)
    if dry_run:
        _print_plan(plan, as_json)
        return
    missing, seeds = len(plan.missing()), plan.configuration.run.seeds
    try:
        with Progress(not quiet, plan.name).track(max(1, missing)) as advance:
            record = run_plan(plan, processes, lambda job, outcome: advance())
    except KeyboardInterrupt:
        kept = f"{len(plan.parts) - len(plan.missing())} of {counted(len(plan.parts), 'part')}"
        remark(f"{kept} are kept in {plan.run.out}; run the same command again to carry on")
        raise
    methods = summaries(record["rows"])
    if as_json:
        print_json(
            _about(plan)
            | {"tasks": len(plan.stream), "seeds": seeds, "parts_run": missing, "methods": methods}
        )
    elif not quiet:
        table = cells_of([{k: v for k, v in each.items() if k != "seeds"} for each in methods])
        print_table(table.header, table.rows, right=table.header[1:])
        counts = ((len(plan.stream), "task"), (len(seeds), "seed"), (missing, "part"))
        tasks = ", ".join(counted(count, thing) for count, thing in counts)
        say(f"{tasks} run: {plan.record_path}")


def _about(plan: "RunPlan") -> dict[str, Any]:
    name, record = plan.name, str(plan.record_path)
    return {"name": name, "record": record, "stream": plan.stream.name}


def _print_plan(plan: "RunPlan", as_json: bool) -> None:
    missing = {id(part) for part in plan.missing()}
    parts: list[dict[str, Any]] = [
        {**part.columns, "finished": id(part) not in missing} for part in plan.parts
    ]
    if as_json:
        print_json(_about(plan) | {"tasks": list(plan.stream.names), "parts": parts})
        return
    rows = [
        [part["method"], str(part["seed"]), "finished" if part["finished"] else "to run"]
        for part in parts
    ]
    print_table(["method", "seed", "state"], rows, right=["seed"])
    say(f"{plan.stream.name}: {counted(len(plan.stream), 'task')}; {plan.record_path}")


def reproduce(
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="A name from --list, or all.")
    ] = None,
    scale: Annotated[
        str,
        option(
            "NAME",
            "smoke (minutes, no data needed but by pretrained), small (real data, hours) or paper.",
        ),
    ] = "smoke",
    data: Annotated[Path, option("DIR", "Where the data sets lie.")] = Path("data"),
    download: Annotated[
        bool,
        option(None, "Fetch MNIST or CIFAR-100 into --data where it is missing.", "--download"),
    ] = False,
    out: Annotated[Path, option("DIR", "Where TARGET.json and the cache go.")] = Path(
        "reproduction"
    ),
    cache: Annotated[Path | None, option("DIR", "Another place for the cache.")] = None,
    executor: Annotated[str, option("NAME", "local, or ray for more than one machine.")] = "local",
    processes: Processes = None,
    device: Device = "cpu",
    list_them: Annotated[
        bool, option(None, "Name the targets with cost and expected result.", "--list")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a target's jobs, as far as they are not in the cache, and write DIR/TARGET.json.

    A run that was stopped goes on where it stopped. `impresslearn report DIR` draws the results.

    Example: impresslearn reproduce rotated-mnist --scale small --data data
    """
    from impresslearn.experiments import targets
    from impresslearn.experiments.jobs import Place
    from impresslearn.experiments.reproduce import Run

    if list_them:
        _print_list(targets.list_targets(), as_json)
        return
    if target is None:
        raise InputError("name a target, or all; --list shows them")
    chosen = targets.list_targets() if target == "all" else (targets.find_target(target),)
    run = Run(scale, Place(str(data), device), out, cache, executor, processes)
    if dry_run:
        _print_estimates(chosen, run, as_json)
        for name, error in _with_data(chosen, run, download=False)[1].items():
            complain(f"{name} cannot be run", error)
        return
    ready, lacking = _with_data(chosen, run, download)
    if target != "all" and lacking:
        raise lacking[target]
    for name, error in lacking.items():
        complain(f"{name} is left out", error)
    try:
        records = _run_targets(ready, run, quiet, as_json)
    except KeyboardInterrupt:
        remark("what is finished is kept; run the same command again to carry on")
        raise
    if as_json and records:
        print_json(records if target == "all" else records[0])
    if lacking:
        raise MissingDataError(f"data are missing of {', '.join(lacking)}")


def _run_targets(
    targets: "Sequence[Target]", run: "Run", quiet: bool, as_json: bool
) -> list[dict[str, Any]]:
    """The records of targets that were run in turn, and told of."""
    from impresslearn.experiments.reproduce import missing_jobs
    from impresslearn.experiments.reproduce import reproduce as run_target

    records = []
    with run.open_executor() as workers:  # started once for all targets
        for number, each in enumerate(targets, start=1):
            place = f" ({number} of {len(targets)})" if len(targets) > 1 else ""
            jobs = len(missing_jobs(each.plan(run.scale), run.open_cache()))
            progress = Progress(not quiet, f"{each.name}{place}")
            with progress.track(max(1, jobs)) as advance:
                records.append(run_target(each, run, workers, lambda *_: advance()))
            if not quiet and not as_json:
                rows = len(records[-1]["rows"])
                say(f"{each.name}: {rows} rows, {jobs} jobs run, {run.out / each.name}.json")
    return records


def _with_data(
    targets: "Sequence[Target]", run: "Run", download: bool
) -> "tuple[list[Target], dict[str, MissingDataError]]":
    """Those targets whose data can be read, and by name what the others lack."""
    from impresslearn.experiments.reproduce import check_data

    ready, lacking = [], {}
    for target in targets:
        try:
            check_data(target, run, download)
            ready.append(target)
        except MissingDataError as error:
            lacking[target.name] = error
    return ready, lacking


def _print_list(targets: "Sequence[Target]", as_json: bool) -> None:
    fields = ("name", "title", "claim", "expects", "cost")
    lines = []
    for target in targets:
        lines += [
            f"{target.name:16} {target.title}",
            f"{'':16} expected: {target.expects}",
            f"{'':16} at scale small, two cores: {target.cost}",
        ]
    answer(as_json, [{f: getattr(t, f) for f in fields} for t in targets], *lines)


def _print_estimates(targets: "Sequence[Target]", run: "Run", as_json: bool) -> None:
    from impresslearn.experiments.estimate import estimate

    found, lines = estimate(targets, run), []
    for name, entry in found.items():
        jobs = ", ".join(f"{count} {kind}" for kind, count in entry["jobs"].items()) or "none"
        lines.append(f"{name:16} about {_duration(entry['minutes'])}; jobs to run: {jobs}")
    answer(as_json, found, *lines)


def _duration(minutes: float) -> str:
    if minutes < 180:
        return f"{minutes:g} minutes"
    hours = minutes / 60
    return f"{hours:,.0f} hours" if hours < 72 else f"{hours / 24:,.0f} days"


def report(
    results: Annotated[
        Path, typer.Argument(metavar="DIR", help="A directory of result records, or one record.")
    ],
    out: Annotated[
        Path | None,
        option("FILE", "The page, instead of DIR/report.html.", show_default=False),
    ] = None,
    markdown: Annotated[
        bool, option(None, "Print the tables as Markdown and nothing else.", "--markdown")
    ] = False,
    latex: Annotated[
        bool, option(None, "Print the tables as LaTeX (package booktabs).", "--latex")
    ] = False,
    csv: Annotated[
        Path | None, option("DIR", "Also write all rows, and the tables' means, as CSV files.")
    ] = None,
    figures: Annotated[Path | None, option("DIR", "Also write every figure as a picture.")] = None,
    picture: Annotated[str, option("svg|png|pdf", "Format of those pictures.", "--format")] = "svg",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Turn result records (*.json) into tables, charts and one self-contained HTML page.

    Reads what `run` and `reproduce` wrote. The page opens from the file system, without network.

    Example: impresslearn report results --figures figures
    """
    from impresslearn.checks import check_choice
    from impresslearn.report import (
        files,
        latex_of,
        markdown_of,
        plain_of,
        printable_of,
        read_findings,
        read_records,
        unshown,
        write_report,
    )

    check_choice("--format", picture, files.FORMATS)
    if markdown and latex:
        raise InputError("--markdown and --latex print the same tables; give one of them")
    records = read_records(results)
    page = results / "report.html" if results.is_dir() else results.with_suffix(".html")
    if results.is_dir() and not quiet:
        for finding in unshown(read_findings(results), ((r.target, r.scale) for r in records)):
            remark(f"not shown: the finding for {finding}, of which there is no record here")
    written = [write_report(records, out or page)]
    if csv is not None:
        written += files.write_csv(records, csv)
    if figures is not None:
        written += files.write_figures(records, figures, picture)
    if as_json:
        told = {"written": list(map(str, written)), "records": list(map(plain_of, records))}
        print_json(told)
        return
    if quiet:
        return
    if markdown or latex:
        for line in "\n\n".join(map(latex_of if latex else markdown_of, records)).split("\n"):
            say(line)
    else:
        for record in records:
            print_rich(printable_of(record))
    for path in written:
        remark(f"wrote {path}")


def bench(
    only: Annotated[
        str | None, option("NAME", "One measurement; an unknown name lists all.")
    ] = None,
    threads: Annotated[int, option("N", "Threads of torch and of the kernels.", min=1)] = 1,
    out: Annotated[Path | None, option("FILE", "Also write the records here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the kernels, the steps, whole epochs and memory, each beside its reference.

    Runs only after the kernels have been compared with the plain-torch reference.

    Example: impresslearn bench --only popup
    """
    from rich.table import Table

    from impresslearn.experiments.bench.cases import run_bench

    table = Table("figure", "value", "reference", "ratio", "meaning", box=None)
    for column in table.columns[1:4]:
        column.justify = "right"
    records = []
    # A moving bar would disturb what is measured; on a terminal the figures' names have to do.
    progress = Progress(not sys.stderr.isatty(), "bench")
    for record in run_bench(only, threads, progress):
        records.append(record)
        remark(f"{record['name']} …")
        unit, alone = record["unit"], record["reference"] is None
        table.add_row(
            record["name"],
            f"{record['value']:g} {unit}",
            "–" if alone else f"{record['reference']:g} {unit}",
            "–" if alone else f"{record['ratio']:.2f}",
            record["meaning"],
        )
    if as_json:
        print_json(records)
    else:
        print_rich(table)
    if out is not None:
        write_file(out, json.dumps(records, indent=1) + "\n")
