"""The code, names and numbers of pages, and the sites of several versions."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import impresslearn as il

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_extensions"))

import records  # noqa: E402
from page_code import blocks, run_page  # noqa: E402

PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    if "_build" not in path.parts
}


@pytest.mark.nightly
def test_the_first_example_says_what_it_reached(tmp_path):
    """README.md is no page of the site."""
    accuracy, size = "\n".join(run_page(PAGES["README.md"], tmp_path)).split()[:2]
    assert float(accuracy) > 0.85
    assert size == "311"


def test_the_code_of_pages_is_linted(tmp_path):
    """As one program a page; imports may stand where they are first needed."""
    for name, path in PAGES.items():
        programs = [each.code for each in blocks(path.read_text("utf-8")) if each.kind == "python"]
        (tmp_path / f"{name.replace('/', '_')[:-3]}.py").write_text("\n".join(programs))
    command = [sys.executable, "-m", "ruff", "check", "--select", "E,F,B,I,UP"]
    command += ["--ignore", "E402,I001,B018", "--line-length", "100", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_public_name_is_in_the_api():
    pages = "\n".join(path.read_text("utf-8") for path in (DOCS / "api").glob("*.md"))
    listed = r"^(?:\.\. auto\w+::|  ) (impresslearn\.\S+)"
    documented = re.findall(listed, pages, flags=re.MULTILINE)
    assert len(documented) == len(set(documented))
    short = {each.rpartition(".")[2] for each in documented}
    rooms = {room: getattr(il, room) for room in il._SUBMODULES}
    wanted = {name for name in il.__all__ if name not in (*rooms, "__version__")}
    for module in rooms.values():
        names = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
        wanted |= {name for name in names if callable(getattr(module, name))}
    assert wanted - short == NO_PAGE


NO_PAGE = {"Allocation", "InferenceMethod", "Mode", "ScoreRule", "import_torchvision", "charts"}
"""Types of arguments, which their functions spell out, help with torchvision, and a module whose
functions have pages."""


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_documents_beside_the_site_lead_somewhere(name):
    """Those of pages are checked when the site is built."""
    text = (ROOT / name).read_text("utf-8")
    links = [each for each in re.findall(r"\]\(([^)#]+)", text) if "://" not in each]
    assert [each for each in links if not (ROOT / each).exists()] == []


PAGE = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
CLAIMS = [
    ("a few masks combine well: rotated MNIST", "rotated-mnist", "heterogeneous", 20),
    ("the same on permuted MNIST", "permuted-mnist", "heterogeneous", 100),
    ("the same on permuted MNIST", "permuted-mnist", "supsup", None),
    ("the same on Split-CIFAR-100", "split-cifar100", "heterogeneous", 15),
    ("the same on Split-CIFAR-100", "split-cifar100", "supsup", None),
    ("five masks suffice", "rotated-mnist", "heterogeneous", 5),
    ("a mask of another task alone", "permuted-mnist", "X", 1),
    ("a mask of another task alone", "rotated-mnist", "X", 1),
    ("homogeneous masks match", "permuted-mnist", "homogeneous", 100),
    ("the same on rotations", "rotated-mnist", "homogeneous", 20),
    ("one-shot inference, N = 10", "gn-comparison", "SupSup-GN", 10),
]


@pytest.mark.parametrize(("claim", "record", "method", "masks"), CLAIMS)
def test_a_verdict_has_the_number_of_its_record(claim, record, method, masks):
    rows = records.read_rows(ROOT / "paper" / "results" / f"{record}.json")
    number = records.accuracy(records.having(rows, method=method, masks=masks))
    (line,) = [line for line in PAGE.splitlines() if line.startswith("|") and claim in line]
    assert number in line


def test_nothing_is_forgotten_in_the_record():
    rows = records.read_rows(ROOT / "paper" / "results" / "forgetting.json")
    learned = records.having(rows, method="ImpressLearn")
    same = records.having(learned, identical=1.0)
    assert f"logits of {len(same)} of {len(learned)} tasks" in PAGE
