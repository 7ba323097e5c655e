"""`impresslearn report`: what it prints, and the files that it leaves."""

import csv

import pytest
import samples
import typer
from typer.testing import CliRunner

from impresslearn.cli.app import app
from impresslearn.cli.experiments import report
from impresslearn.report import (
    markdown_of,
    parse_record,
    read_records,
    write_csv,
    write_figures,
    write_report,
)
from toys import refused

MEANS = """

**Means**

| method | masks | accuracy | bytes per task | n |
| --- | ---: | ---: | ---: | ---: |
| a\\|b \\*c\\*\\\\n\\<i\\> | 5 | 60.0 ± 24.8% | 60 B | 3 |
| a\\|b \\*c\\*\\\\n\\<i\\> | 10 | 60.0 ± 24.8% | 120 B | 3 |
| supsup | – | 90.0% | – | 1 |

*mean ± half a 95% t interval over the means of 3 tasks; n: rows*

"""


def small():
    rows = [
        {"method": "a|b *c*\n<i>", "masks": masks, "task": f"t{task}", "seed": 0}
        | {"accuracy": 0.5 + 0.1 * task, "bytes_per_task": 12 * masks}
        for masks in (10, 5)
        for task in range(3)
    ]
    rows.append({"method": "supsup", "task": "t0", "seed": 0, "accuracy": 0.9})
    columns, values = ["method", "masks"], ["accuracy", "bytes_per_task"]
    means = {"title": "Means", "columns": columns, "values": values}
    cells = {"header": ["name", "K"], "rows_verbatim": [["x" * 300, 10]]}
    figure = {"kind": "bar", "title": "By [bold]masks[/bold]", "x": "masks", "y": "accuracy"}
    mean = {"title": "B", "value": "accuracy", "where": {"method": "supsup"}}
    shown = {"title": "A [bold]small[/bold] one", "highlights": [mean, {"value": "bytes_per_task"}]}
    return samples.record("small", rows, [figure], [means, cells], **shown)


@pytest.fixture
def run(tmp_path):
    samples.write(tmp_path, small())
    app = typer.Typer()
    app.command()(report)
    return lambda *options: CliRunner().invoke(
        app, [str(tmp_path), *options], catch_exceptions=False, env={"COLUMNS": "160"}
    )


def test_prints_claim_data_and_tables_and_writes_the_page(run, tmp_path):
    result = run()
    assert result.exit_code == 0
    for expected in (
        "A [bold]small[/bold] one",
        "The paper: Accuracy grows",
        "Scale small; made-up numbers, no measurement; 7 rows; 5 min 12 s.",
        "B 90.0% · bytes per task 90 B",
        "60.0 ± 24.8%",
    ):
        assert expected in result.stdout
    assert result.stdout.count("x") >= 300  # no name is cut
    assert "…" not in result.stdout
    assert f"wrote {tmp_path / 'report.html'}" in result.stderr
    assert (tmp_path / "report.html").exists()


def test_markdown_is_all_that_goes_to_stdout(run, tmp_path):
    result = run("--markdown", "--out", str(tmp_path / "page.html"))
    assert result.stdout.startswith("## A \\[bold\\]small\\[/bold\\] one\n")
    assert MEANS in result.stdout
    assert f"| {'x' * 300} | 10 |\n" in result.stdout
    assert "wrote" not in result.stdout
    assert (tmp_path / "page.html").exists()
    assert not (tmp_path / "report.html").exists()


LATEX = r"""\begin{table}
\centering
\caption{Means: mean $\pm$ half a 95\% t interval over the means of 3 tasks; n: rows}
\begin{tabular}{lrrrr}
\toprule
method & masks & accuracy & bytes per task & n \\
\midrule
a|b *c*\textbackslash{}n$<$i$>$ & 5 & 60.0 $\pm$ 24.8\% & 60 B & 3 \\
a|b *c*\textbackslash{}n$<$i$>$ & 10 & 60.0 $\pm$ 24.8\% & 120 B & 3 \\
supsup & – & 90.0\% & – & 1 \\
\bottomrule
\end{tabular}
\end{table}
"""


def test_latex_is_all_that_goes_to_stdout(run):
    result = run("--latex")
    assert result.stdout.startswith(LATEX)
    assert result.stdout.count(r"\begin{table}") == 2


def test_one_record_has_a_page_of_its_own(run, tmp_path):
    assert CliRunner().invoke(app, ["report", str(tmp_path / "small.json")]).exit_code == 0
    assert (tmp_path / "small.html").exists()
    assert not (tmp_path / "report.html").exists()


def test_means_say_their_unit(run, tmp_path):
    run("--quiet", "--csv", str(tmp_path))
    with (tmp_path / "small-means.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["measure"]: row["unit"] for row in rows} == {
        "accuracy": "fraction",
        "bytes_per_task": "bytes",
    }
    assert [(row["over"], row["n"]) for row in rows][-1] == ("", "1")
    assert ("3 tasks", "3") in {(row["over"], row["n"]) for row in rows}


def test_single_rows_are_not_counted():
    shown = markdown_of(parse_record(small() | {"rows": small()["rows"][::3]}))
    assert "| method | masks | accuracy | bytes per task |\n" in shown
    assert "| 5 | 50.0% | 60 B |\n" in shown
    assert "n: rows" not in shown


@pytest.mark.parametrize(
    ("suffix", "start"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")]
)
def test_csv_and_pictures(run, tmp_path, suffix, start):
    folders = ("--csv", str(tmp_path), "--figures", str(tmp_path))
    assert run("--quiet", *folders, "--format", suffix).output == ""
    picture = tmp_path / f"small-1-by-bold-masks-bold.{suffix}"
    first = picture.read_bytes()
    assert first.startswith(start)
    with (tmp_path / "small.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7
    wanted = {"method": "supsup", "task": "t0", "seed": "0", "accuracy": "0.9"}
    assert rows[-1] == wanted | {"masks": "", "bytes_per_task": ""}
    if suffix == "svg":  # a committed picture changes only when its numbers do
        run("--quiet", *folders)
        assert picture.read_bytes() == first


CONTROLS = "a\x1b[2J\x00\x9b\u202e\u2028\udcff"


def test_what_steers_a_terminal_is_written_out_in_every_form(tmp_path):
    samples.write(tmp_path, samples.hostile(CONTROLS))
    records, page = read_records(tmp_path), tmp_path / "report.html"
    write_report(records, page)
    written = [*write_csv(records, tmp_path), *write_figures(records, tmp_path), page]
    texts = [path.read_text(encoding="utf-8") for path in written]
    unwanted = set(CONTROLS) - set("a[2J")
    for text in (*texts, *map(markdown_of, records)):
        assert not unwanted & set(text)
    assert r"a\x1b[2J\x00\x9b\u202e" in texts[0]  # the CSV file
    refused("a picture is one of svg, png, pdf, got 'gif'", write_figures, records, tmp_path, "gif")


def test_refuses_before_it_writes(run, tmp_path):
    refused("--format must be one of svg, png, pdf, got 'gif'", run, "--format", "gif")
    (tmp_path / "other.json").write_text("{}")
    refused(r"other\.json: format is missing", run)
    assert not (tmp_path / "report.html").exists()
