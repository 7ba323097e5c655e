"""`impresslearn report`: what it prints and what it leaves."""

import pytest
import samples
import typer
from typer.testing import CliRunner

from impresslearn.cli.report import report
from impresslearn.errors import InputError
from impresslearn.report import (
    markdown_of,
    read_records,
    write_csv,
    write_figures,
    write_report,
)


@pytest.fixture
def run(tmp_path):
    samples.write(tmp_path, samples.overlap())
    app = typer.Typer()
    app.command()(report)
    return lambda *options: CliRunner().invoke(
        app, [str(tmp_path), *options], catch_exceptions=False, env={"COLUMNS": "160"}
    )


def test_prints_tables_and_writes_the_page(run, tmp_path):
    result = run()
    assert result.exit_code == 0
    assert "Overlap of masks, layer by layer" in result.stdout
    assert "PermutedMNIST" in result.stdout
    assert f"wrote {tmp_path / 'report.html'}" in result.stderr
    assert (tmp_path / "report.html").exists()


def test_markdown_is_all_that_goes_to_stdout(run, tmp_path):
    result = run("--markdown", "--out", str(tmp_path / "page.html"))
    assert result.stdout.startswith("## Overlap of masks, layer by layer\n")
    assert "| PermutedMNIST | 784! | 10 |" in result.stdout
    assert "wrote" not in result.stdout
    assert (tmp_path / "page.html").exists()
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("suffix", "start"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")]
)
def test_csv_and_pictures(run, tmp_path, suffix, start):
    folders = ("--csv", str(tmp_path / "c"), "--figures", str(tmp_path / "f"))
    result = run("--quiet", *folders, "--format", suffix)
    assert result.output == ""
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["overlap.csv"]
    drawn = sorted((tmp_path / "f").iterdir())
    assert [path.name for path in drawn] == [
        f"overlap-1-overlap-by-layer.{suffix}",
        f"overlap-2-overlap-by-kind.{suffix}",
    ]
    first = [path.read_bytes() for path in drawn]
    assert all(content.startswith(start) for content in first)
    if suffix == "svg":  # a committed picture changes only when its numbers do
        run("--quiet", *folders)
        assert [path.read_bytes() for path in drawn] == first


CONTROLS = "a\x1b[2J\x00\x9b\u202e\u2028\udcff"


def test_what_steers_a_terminal_is_written_out_in_every_form(tmp_path):
    samples.write(tmp_path, samples.hostile(CONTROLS))
    records = read_records(tmp_path)
    write_report(records, tmp_path / "report.html")
    written = [*write_csv(records, tmp_path), *write_figures(records, tmp_path)]
    texts = [path.read_text(encoding="utf-8") for path in [*written, tmp_path / "report.html"]]
    unwanted = set(CONTROLS) - set("a[2J")
    for text in (*texts, *map(markdown_of, records)):
        assert not unwanted & set(text)
    assert r"a\x1b[2J\x00\x9b\u202e" in texts[0]  # the CSV file
    with pytest.raises(InputError, match="a picture is one of svg, png, pdf, got 'gif'"):
        write_figures(records, tmp_path, "gif")


def test_refuses_before_it_writes(run, tmp_path):
    with pytest.raises(InputError, match="--format must be one of svg, png, pdf, got 'gif'"):
        run("--format", "gif")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match=r"other\.json: format is missing"):
        run()
    assert not (tmp_path / "report.html").exists()
