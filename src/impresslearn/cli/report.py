"""`impresslearn report`: result records -> tables, pictures and one HTML page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from impresslearn.cli.arguments import Quiet
from impresslearn.cli.output import print_rich, remark, say
from impresslearn.errors import InputError

if TYPE_CHECKING:
    from impresslearn.report.records import Record


def report(
    results: Annotated[
        Path, typer.Argument(metavar="DIR", help="A directory of result records, or one record.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The page; DIR/report.html unless given.", show_default=False
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables as Markdown and nothing else.")
    ] = False,
    csv: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write all rows, one CSV file a target.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every figure as a picture.")
    ] = None,
    picture: Annotated[
        str, typer.Option("--format", metavar="svg|png|pdf", help="Format of those pictures.")
    ] = "svg",
    quiet: Quiet = False,
) -> None:
    """Turn result records (*.json) into tables, charts and one self-contained HTML page.

    Reads what `impresslearn reproduce` wrote. The page opens from the file system, without network.
    """
    from impresslearn.report import files, read_findings, read_records, unshown, write_report

    if picture not in files.FORMATS:
        raise InputError(f"--format must be one of {', '.join(files.FORMATS)}, got {picture!r}")
    records = read_records(results)
    folder = results if results.is_dir() else results.parent
    if results.is_dir() and not quiet:
        for finding in unshown(read_findings(results), ((r.target, r.scale) for r in records)):
            remark(f"not shown: the finding for {finding}, of which there is no record here")
    written = [out or folder / "report.html"]
    write_report(records, written[0])
    if csv is not None:
        written += files.write_csv(records, csv)
    if figures is not None:
        written += files.write_figures(records, figures, picture)
    if not quiet:
        _print(records, markdown)
        for path in written:
            remark(f"wrote {path}")


def _print(records: "list[Record]", markdown: bool) -> None:
    from impresslearn.report import markdown_of, printable_of

    if markdown:
        for line in "\n\n".join(map(markdown_of, records)).split("\n"):
            say(line)
        return
    for record in records:
        print_rich(printable_of(record))
