"""`impresslearn report`: what it prints and what it leaves."""

import pytest
import samples
import typer
from typer.testing import CliRunner

from impresslearn.cli.report import report
from impresslearn.errors import InputError


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


def test_csv_and_pictures(run, tmp_path):
    pytest.importorskip("matplotlib")
    result = run("--quiet", "--csv", str(tmp_path / "c"), "--figures", str(tmp_path / "f"))
    assert result.output == ""
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["overlap.csv"]
    assert sorted(path.suffix for path in (tmp_path / "f").iterdir()) == [".svg", ".svg"]


def test_refuses_before_it_writes(run, tmp_path):
    with pytest.raises(InputError, match="--format must be one of svg, png, pdf, got 'gif'"):
        run("--format", "gif")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match=r"other\.json: the record lacks 'format'"):
        run()
    assert not (tmp_path / "report.html").exists()
