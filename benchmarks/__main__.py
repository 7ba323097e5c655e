"""Command line: `python -m benchmarks list | reproduce | report | speed`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import targets
from benchmarks.jobs import Cache, JobContext, in_order, run_jobs
from benchmarks.records import read_records, write_record
from benchmarks.targets.plan import SCALES, Target
from impresslearn.errors import ImpressLearnError, MissingDataError
from impresslearn.methods.comparing import BACKENDS
from impresslearn.training.progress import Progress


def main() -> int:
    """Runs a command and returns the exit status."""
    options = _parser().parse_args()
    try:
        return options.run(options)
    except ImpressLearnError as error:
        print(error, file=sys.stderr)
    except ModuleNotFoundError as error:  # the package of a pretrained network
        print(f"{error}; pip install 'impresslearn[examples]'", file=sys.stderr)
    return 2


def list_targets(options: argparse.Namespace) -> int:
    """Prints the targets with their cost and expected results."""
    for target in targets.list_targets():
        print(f"{target.name:20} {target.title}")
        print(f"{'':20} expected: {target.expects}")
        print(f"{'':20} at scale small, two cores: {target.cost}")
    return 0


def reproduce_targets(options: argparse.Namespace) -> int:
    """Runs the missing jobs of targets; `all` leaves out targets whose data are missing."""
    everything = options.target == "all"
    chosen = targets.list_targets() if everything else (targets.find_target(options.target),)
    for target in chosen:
        try:
            record, jobs = reproduce(target, options)
        except MissingDataError as error:
            if not everything:
                raise
            print(f"{target.name} is left out: {error}", file=sys.stderr)
            continue
        print(f"{target.name}: {len(record['rows'])} rows, {jobs} jobs run, {options.out}")
    return 0


def reproduce(target: Target, options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """Runs a target's missing jobs and writes its record; returns it and the number of these jobs.

    - options: scale, data, out, device, workers and backend, as given to the command

    Raises MissingDataError, before the first job, if data are missing.
    """
    from benchmarks.work.inputs import check_inputs

    started, plan = time.perf_counter(), target.plan(options.scale)
    place = JobContext(str(options.data), options.device)
    cache = Cache(options.out / "cache", options.device)
    jobs = in_order(planned.job for planned in plan.planned)
    missing = cache.missing(jobs)
    if options.backend != "ray":  # on Ray, the data are on its machines
        check_inputs(missing, place)
    with Progress(True, target.name).track(max(1, len(missing))) as advance:
        run_jobs(missing, cache, place, options.workers, options.backend, advance)
    rows = []
    outcomes = {job.key: cache.load(job) for job in jobs}
    for planned in plan.planned:
        rows += planned.rows(outcomes[planned.job.key].values)
    job_seconds = sum(outcome.seconds for outcome in outcomes.values())
    rows = plan.finish(rows)
    record = {"target": target.name, "scale": options.scale, "title": target.title}
    record |= {"claim": target.claim, "data": plan.data, "settings": plan.settings}
    record |= {"seeds": plan.seeds, "figures": plan.figures, "tables": plan.tables, "rows": rows}
    record["seconds"] = round(time.perf_counter() - started, 1)
    write_record(record, options.out / f"{target.name}.json", options.device, job_seconds)
    return record, len(missing)


def report(options: argparse.Namespace) -> int:
    """Prints the tables of records and, if asked, draws their figures."""
    from benchmarks.report import tables_text, write_figures

    records = read_records(options.results)
    for record in records:
        print(tables_text(record), end="\n\n")
    for path in write_figures(records, options.figures) if options.figures else ():
        print(f"wrote {path}", file=sys.stderr)
    return 0


def speed(options: argparse.Namespace) -> int:
    """Measures the speed of kernels and steps, each with its reference in the same run."""
    from benchmarks.speed import measure

    records = []
    for record in measure(options.only, options.threads):
        records.append(record)
        value = f"{record['name']:32} {record['value']:10g} {record['unit']}"
        print(f"{value}  ratio {record['ratio']:.2f}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True)
    names = commands.add_parser("list", help="name the targets")
    names.set_defaults(run=list_targets)
    run = commands.add_parser("reproduce", help="run a target, or all; goes on after a stop")
    run.set_defaults(run=reproduce_targets)
    run.add_argument("target", help="a name from `list`, or all")
    run.add_argument("--scale", choices=SCALES, default="smoke")
    run.add_argument("--data", type=Path, default=Path("data"), help="where the data sets lie")
    run.add_argument("--out", type=Path, default=Path("reproduction"), help="records and cache")
    run.add_argument("--workers", type=int, help="jobs side by side; the cores by default")
    run.add_argument("--backend", choices=BACKENDS, default="loky", help="processes, or Ray")
    run.add_argument("--device", default="cpu")
    show = commands.add_parser("report", help="print the tables of records")
    show.set_defaults(run=report)
    show.add_argument("results", type=Path, help="a folder of records, or one record")
    show.add_argument("--figures", type=Path, help="also write every figure here")
    timed = commands.add_parser("speed", help="measure kernels and steps")
    timed.set_defaults(run=speed)
    timed.add_argument("--only", help="one measurement; an unknown name lists all")
    timed.add_argument("--threads", type=int, default=1)
    timed.add_argument("--out", type=Path, help="also write the records here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
