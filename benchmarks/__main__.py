"""Command line: `python -m benchmarks list | reproduce | report | speed`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks import targets
from benchmarks.bench.cases import run_bench
from benchmarks.jobs import Place
from benchmarks.report import files, latex_of, markdown_of, read_records, write_report
from benchmarks.reproduce import EXECUTORS, Run, check_data, missing_jobs, reproduce
from impresslearn.errors import ImpressLearnError, MissingDataError
from impresslearn.training.progress import Progress


def main() -> int:
    """Runs a command; returns the exit code."""
    options = _parser().parse_args()
    commands = {
        "list": list_targets,
        "reproduce": reproduce_targets,
        "report": report,
        "speed": speed,
    }
    try:
        return commands[options.command](options)
    except ImpressLearnError as error:
        print(error, file=sys.stderr)
        return 2


def list_targets(options: argparse.Namespace) -> int:
    """Names the targets with their cost and what to expect."""
    for target in targets.list_targets():
        print(f"{target.name:16} {target.title}")
        print(f"{'':16} expected: {target.expects}")
        print(f"{'':16} at scale small, two cores: {target.cost}")
    return 0


def reproduce_targets(options: argparse.Namespace) -> int:
    """Runs what is missing of targets; those without their data are left out of `all`."""
    everything = options.target == "all"
    chosen = targets.list_targets() if everything else (targets.find_target(options.target),)
    place = Place(str(options.data), options.device)
    run = Run(options.scale, place, options.out, None, options.backend, options.workers)
    lacking = []
    with run.open_executor() as workers:
        for target in chosen:
            try:
                check_data(target, run)
            except MissingDataError as error:
                print(f"{target.name} is left out: {error}", file=sys.stderr)
                lacking.append(target.name)
                continue
            jobs = len(missing_jobs(target.plan(run.scale), run.open_cache()))
            with Progress(True, target.name).track(max(1, jobs)) as advance:
                record = reproduce(target, run, workers, lambda *_, step=advance: step())
            print(f"{target.name}: {len(record['rows'])} rows, {jobs} jobs run, {run.out}")
    return 1 if lacking and not everything else 0


def report(options: argparse.Namespace) -> int:
    """Writes a page, and on request pictures, CSV, Markdown and LaTeX, from records."""
    records = read_records(options.results)
    page = options.results / "report.html"
    written = [write_report(records, page if options.results.is_dir() else page.parent)]
    if options.csv:
        written += files.write_csv(records, options.csv)
    if options.figures:
        written += files.write_figures(records, options.figures, "svg")
    if options.markdown or options.latex:
        print("\n\n".join(map(latex_of if options.latex else markdown_of, records)))
    for path in written:
        print(f"wrote {path}", file=sys.stderr)
    return 0


def speed(options: argparse.Namespace) -> int:
    """Measures kernels and steps, each beside its reference in the same run."""
    records = []
    for record in run_bench(options.only, options.threads, Progress()):
        records.append(record)
        ratio = "" if record["reference"] is None else f"  ratio {record['ratio']:.2f}"
        print(f"{record['name']:32} {record['value']:10g} {record['unit']}{ratio}")
    if options.out:
        options.out.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name the targets")
    run = commands.add_parser("reproduce", help="run a target, or all; goes on after a stop")
    run.add_argument("target", help="a name from `list`, or all")
    run.add_argument("--scale", choices=("smoke", "small", "paper"), default="smoke")
    run.add_argument("--data", type=Path, default=Path("data"), help="where the data sets lie")
    run.add_argument("--out", type=Path, default=Path("reproduction"), help="records and cache")
    run.add_argument("--workers", type=int, help="jobs side by side; the cores by default")
    run.add_argument("--backend", choices=tuple(EXECUTORS), default="local")
    run.add_argument("--device", default="cpu")
    show = commands.add_parser("report", help="draw records")
    show.add_argument("results", type=Path, help="a folder of records")
    show.add_argument("--figures", type=Path, help="also write every figure here")
    show.add_argument("--csv", type=Path, help="also write all rows here")
    show.add_argument("--markdown", action="store_true", help="print the tables")
    show.add_argument("--latex", action="store_true", help="print the tables for booktabs")
    measure = commands.add_parser("speed", help="measure kernels and steps")
    measure.add_argument("--only", help="one measurement; an unknown name lists all")
    measure.add_argument("--threads", type=int, default=1)
    measure.add_argument("--out", type=Path, help="also write the records here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
