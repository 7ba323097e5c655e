"""`impresslearn bench`: speed and memory against references, in one run."""

import json
import sys
from pathlib import Path
from typing import Annotated

from impresslearn.cli.arguments import option
from impresslearn.cli.output import print_rich, remark
from impresslearn.files import write_file
from impresslearn.optimisation.progress import Progress


def bench(
    only: Annotated[
        str | None, option("NAME", "One measurement; an unknown name lists all.")
    ] = None,
    threads: Annotated[int, option("N", "Threads of torch and of the kernels.", min=1)] = 1,
    json_file: Annotated[
        Path | None, option("FILE", "Also write the records here.", "--json")
    ] = None,
) -> None:
    """Measure the kernels, the steps, whole epochs and memory, each beside its reference.

    Runs only after the kernels have been compared with the plain-torch reference.
    """
    from rich.table import Table

    from impresslearn.experiments.bench import run_bench

    table = Table("figure", "value", "reference", "ratio", "meaning", box=None)
    for column in table.columns[1:4]:
        column.justify = "right"
    records = []
    # A moving bar would disturb what is measured; on a terminal the figures' names have to do.
    progress = Progress(not sys.stderr.isatty(), "bench")
    for record in run_bench(only, threads, progress):
        plain = record.plain()
        records.append(plain)
        remark(f"{record.name} …")
        table.add_row(
            record.name,
            f"{plain['value']:g} {record.unit}",
            "–" if record.reference is None else f"{plain['reference']:g} {record.unit}",
            "–" if record.ratio is None else f"{record.ratio:.2f}",
            record.meaning,
        )
    print_rich(table)
    if json_file is not None:
        write_file(json_file, json.dumps(records, indent=1) + "\n")
