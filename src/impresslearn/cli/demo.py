"""`impresslearn demo`: the whole method on rotated digits, in under a minute."""

from pathlib import Path
from typing import Annotated

from impresslearn.cli.arguments import AsJson, Quiet, option
from impresslearn.cli.output import print_json, print_rich, say


def demo(
    out: Annotated[Path, option("DIR", "Where results.json and report.html go.")] = Path("demo"),
    seed: Annotated[int, option("N", "The same seed gives the same result.", min=0)] = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn 5 basis tasks, then 10 new tasks that cost a handful of numbers each.

    Rotated 8x8 digits, no download. Compares ImpressLearn with one dedicated mask a task (SupSup)
    and with a single foreign mask, and writes DIR/results.json and DIR/report.html.
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
