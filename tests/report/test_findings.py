"""What people found: a file of its own, shown with the records, never erased by a measurement."""

import json

import pytest
import samples
from typer.testing import CliRunner

from impresslearn.cli.app import app
from impresslearn.errors import InputError
from impresslearn.experiments.configuration import read_configuration
from impresslearn.experiments.record import write_record
from impresslearn.report import markdown_of, read_findings, read_records
from impresslearn.report.findings import FILE, unshown

NEW = samples.overlap() | {"target": "overlap", "scale": "small"}
NEW.pop("finding", None)
OLD = NEW | {"finding": "Masks overlap\tby chance."}


def write(folder, findings):
    (folder / FILE).write_text(json.dumps(findings), encoding="utf-8")


@pytest.mark.parametrize(
    ("record", "findings", "shown"),
    [
        (NEW, {}, ""),
        (OLD, {}, "Masks overlap\\tby chance."),
        (NEW, {"overlap": {"small": "As expected\x1b.", "paper": "other"}}, "As expected\\x1b."),
        (OLD, {"overlap": {"small": "As expected."}}, "As expected."),
        (OLD, {"overlap": {"paper": "other"}}, "Masks overlap\\tby chance."),
    ],
)
def test_a_report_shows_the_finding(tmp_path, record, findings, shown):
    samples.write(tmp_path, record)
    if findings:
        write(tmp_path, findings)
    for place in (tmp_path, tmp_path / "overlap.json"):
        (read,) = read_records(place)
        assert read.finding == shown
    assert ("Found here: " in markdown_of(read)) == bool(shown)


@pytest.mark.parametrize("before", [{}, {"overlap": {"small": "There already."}, "x": {"y": "z"}}])
def test_measuring_again_leaves_findings_alone(tmp_path, before):
    if before:
        write(tmp_path, before)
    kept = (tmp_path / FILE).read_bytes() if before else None
    for _ in range(2):
        write_record(NEW, tmp_path / "overlap.json")
    assert ((tmp_path / FILE).read_bytes() if before else None) == kept
    assert read_findings(tmp_path) == before


@pytest.mark.parametrize("scale", ["small", "smoke"])
@pytest.mark.parametrize("before", [{}, {"overlap": {"small": "First."}, "x": {"y": "z"}}])
def test_an_older_record_gives_its_finding_up_only_to_the_file(tmp_path, scale, before):
    samples.write(tmp_path, OLD)
    if before:
        write(tmp_path, before)
    for _ in range(2):
        write_record(NEW | {"scale": scale}, tmp_path / "overlap.json")
    first = "First. " if before else ""
    expected = before | {"overlap": {"small": f"{first}{OLD['finding']}"}}
    assert read_findings(tmp_path) == expected
    assert "finding" not in json.loads((tmp_path / "overlap.json").read_text(encoding="utf-8"))


def test_what_is_no_record_is_written_over(tmp_path):
    (tmp_path / "overlap.json").write_text("{")
    write_record(NEW, tmp_path / "overlap.json")
    assert read_records(tmp_path)[0].finding == ""


def test_a_name_that_is_no_text_is_kept(tmp_path):
    record = NEW | {"title": "\udcff é", "rows": [{"task": "\udcff é\n"}]}
    write_record(record, tmp_path / "overlap.json")
    assert json.loads((tmp_path / "overlap.json").read_text(encoding="utf-8")) == record


def test_a_finding_without_its_record_is_told(tmp_path):
    samples.write(tmp_path, NEW)
    findings = {"overlap": {"paper": "a", "small": "b"}, "gone": {"small": "c"}}
    assert unshown(findings, [("overlap", "small")]) == [
        "overlap at scale paper",
        "gone at scale small",
    ]
    write(tmp_path, findings)
    told = CliRunner().invoke(app, ["report", str(tmp_path)], catch_exceptions=False)
    assert told.stderr.count("not shown: the finding for ") == 2
    quiet = CliRunner().invoke(app, ["report", "-q", str(tmp_path)], catch_exceptions=False)
    assert quiet.output == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "must be a valid dictionary, got []"),
        ('{"overlap": "text"}', "overlap must be a valid dictionary, got 'text'"),
        ('{"overlap": {"small": 3}}', "overlap.small must be a valid string, got 3"),
    ],
)
def test_a_file_that_holds_no_findings_is_named(tmp_path, content, message):
    samples.write(tmp_path, NEW)
    (tmp_path / FILE).write_text(content)
    with pytest.raises(InputError) as caught:
        read_records(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / FILE}: ")
    assert message in str(caught.value)


def test_a_run_of_that_name_is_refused(tmp_path):
    path = tmp_path / "findings.toml"
    path.write_text("")
    with pytest.raises(InputError, match=r"its record would be findings\.json"):
        read_configuration(path)


def test_the_project_s_own_findings_have_their_records(request):
    folder = request.config.rootpath / "paper" / "results"
    records = read_records(folder)
    assert all(record.finding for record in records)
    assert not unshown(read_findings(folder), [(r.target, r.scale) for r in records])
