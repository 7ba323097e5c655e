"""`impresslearn reproduce`: the figures and tables of the paper, and ours beside them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from impresslearn.cli.arguments import AsJson, Device, DryRun, Processes, Quiet, option
from impresslearn.cli.output import print_json, say
from impresslearn.errors import InputError
from impresslearn.optimisation.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from impresslearn.experiments.reproduce import Run
    from impresslearn.experiments.targets import Target


def reproduce(
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="A name from --list, or all.")
    ] = None,
    scale: Annotated[
        str, option("NAME", "smoke (no data needed), small (real data, hours) or paper.")
    ] = "smoke",
    data: Annotated[Path, option("DIR", "Where the data sets lie.")] = Path("data"),
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
    """
    from impresslearn.experiments import targets

    if list_them:
        _print_list(targets.list_targets(), as_json)
        return
    if target is None:
        raise InputError("name a target, or all; --list shows them")
    from impresslearn.experiments.jobs import Place
    from impresslearn.experiments.reproduce import Run, missing_jobs
    from impresslearn.experiments.reproduce import reproduce as run_target

    chosen = targets.list_targets() if target == "all" else (targets.find_target(target),)
    run = Run(scale, Place(str(data), device), out, cache, executor, processes)
    if dry_run:
        _print_estimates(chosen, run, as_json)
        return
    records = []
    with run.open_executor() as workers:  # started once for all targets
        for number, each in enumerate(chosen, start=1):
            place = f" ({number} of {len(chosen)})" if len(chosen) > 1 else ""
            jobs = len(missing_jobs(each.plan(scale), run.open_cache()))
            progress = Progress(not quiet, f"{each.name}{place}")
            with progress.track(max(1, jobs)) as advance:
                records.append(run_target(each, run, workers, lambda *_: advance()))
            if not quiet and not as_json:
                rows = len(records[-1]["rows"])
                say(f"{each.name}: {rows} rows, {jobs} jobs run, {out / each.name}.json")
    if as_json:
        print_json(records if target == "all" else records[0])


def _print_list(targets: "Sequence[Target]", as_json: bool) -> None:
    if as_json:
        fields = ("name", "title", "claim", "expects", "cost")
        print_json([{f: getattr(t, f) for f in fields} for t in targets])
        return
    for target in targets:
        say(f"{target.name:16} {target.title}")
        say(f"{'':16} expected: {target.expects}")
        say(f"{'':16} at scale small, two cores: {target.cost}")


def _print_estimates(targets: "Sequence[Target]", run: "Run", as_json: bool) -> None:
    from impresslearn.experiments.estimate import estimate

    found = estimate(targets, run)
    if as_json:
        print_json(found)
        return
    for name, entry in found.items():
        jobs = ", ".join(f"{count} {kind}" for kind, count in entry["jobs"].items()) or "none"
        say(f"{name:16} about {_duration(entry['minutes'])}; jobs to run: {jobs}")


def _duration(minutes: float) -> str:
    if minutes < 180:
        return f"{minutes:g} minutes"
    hours = minutes / 60
    return f"{hours:,.0f} hours" if hours < 72 else f"{hours / 24:,.0f} days"
