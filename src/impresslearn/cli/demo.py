"""`impresslearn demo`: the whole method on rotated digits, in under a minute."""

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from impresslearn.cli.output import print_json, print_rich, say
from impresslearn.errors import InputError


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where results.json and report.html go.")
    ] = Path("demo"),
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="The same seed gives the same result.")
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON and nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Learn 5 basis tasks, then 10 new tasks that cost a handful of numbers each.

    Rotated 8x8 digits, no download. Compares ImpressLearn with one dedicated mask a task (SupSup)
    and with a single foreign mask, and writes DIR/results.json and DIR/report.html.
    """
    _make_writable(out)  # before the work, not after it

    from impresslearn.experiments.demo import run_demo
    from impresslearn.report import tasks_table, write_demo_report

    results = run_demo(seed=seed, progress=not quiet)
    text = json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False)
    report = out / "report.html"
    try:
        (out / "results.json").write_text(text + "\n", encoding="utf-8")
        write_demo_report(results, report)
    except OSError as error:
        raise _cannot_write(out, error) from None
    if as_json:
        print_json(results)
    elif not quiet:
        print_rich(tasks_table(results))
        say()
        say(f"Report: {report}")


def _make_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _cannot_write(folder, error) from None


def _cannot_write(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot write to {folder}: {error.strerror or error}; choose another directory with --out"
    )
