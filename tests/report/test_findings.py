"""What people found: a file of its own, shown with the records, never erased by a measurement."""

import json

import pytest
import samples

from impresslearn.experiments.configuration import read_configuration
from impresslearn.experiments.record import write_record
from impresslearn.report import markdown_of, read_findings, read_records, unshown
from impresslearn.report.records import FINDINGS as FILE
from toys import refused

NEW = samples.overlap() | {"scale": "small"}
OLD = NEW | {"finding": "Masks overlap\tby chance."}


def write(folder, findings):
    (folder / FILE).write_text(json.dumps(findings), encoding="utf-8")


@pytest.mark.parametrize(
    ("record", "findings", "shown"),
    [
        (NEW, {}, ""),
        (NEW, {"overlap": {"small": "As expected\x1b.", "paper": "other"}}, "As expected\\x1b."),
        (OLD, {"overlap": {"small": "As expected."}}, "As expected."),
        (OLD, {"overlap": {"paper": "other"}}, "Masks overlap\\tby chance."),
    ],
)
def test_a_report_shows_the_finding(tmp_path, record, findings, shown):
    samples.write(tmp_path, record)
    write(tmp_path, findings)
    for place in (tmp_path, tmp_path / "overlap.json"):
        (read,) = read_records(place)
        assert read.finding == shown
    assert ("Found here: " in markdown_of(read)) == bool(shown)


@pytest.mark.parametrize("there", [None, NEW, OLD])
@pytest.mark.parametrize("before", [{}, {"overlap": {"small": "First."}, "x": {"y": "z"}}])
def test_measuring_again_erases_no_finding(tmp_path, there, before):
    path, expected = tmp_path / "overlap.json", before
    if there is not None:
        samples.write(tmp_path, there)
    if before:
        write(tmp_path, before)
    if there is OLD:
        both = ("First. " if before else "") + OLD["finding"]
        expected = before | {"overlap": {"small": both}}
    for scale in ("small", "smoke"):
        write_record(NEW | {"scale": scale}, path)
    assert read_findings(tmp_path) == expected
    assert (tmp_path / FILE).exists() == bool(expected)
    assert "finding" not in json.loads(path.read_text(encoding="utf-8"))


def test_what_is_no_record_is_written_over_and_names_that_are_no_text_are_kept(tmp_path):
    path = tmp_path / "overlap.json"
    path.write_text("{")
    record = NEW | {"title": "\udcff é", "rows": [{"task": "\udcff é\n"}]}
    write_record(record, path)
    assert json.loads(path.read_text(encoding="utf-8")) == record


def test_a_run_of_that_name_is_refused(tmp_path):
    (tmp_path / FILE).with_suffix(".toml").write_text("")
    refused(r"record would be findings\.json", read_configuration, tmp_path / "findings.toml")


def test_the_project_s_own_findings_have_their_records(request):
    folder = request.config.rootpath / "paper" / "results"
    records = read_records(folder)
    assert all(record.finding for record in records)
    assert not unshown(read_findings(folder), [(r.target, r.scale) for r in records])
