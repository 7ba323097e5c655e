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


PRETRAINED = {"method": "ImpressLearn, pretrained"}
ON_IMAGES = {"benchmark": "image-network"}
ON_RESNET20 = {"benchmark": "image-network-resnet20"}
ON_SENTENCES = {"benchmark": "sentences"}
ON_CUSTOMERS = {"benchmark": "sentence-customers"}
ON_DIGITS = {"labels": 100, "role": "evaluation"}
ON_PERMUTATIONS = {"benchmark": "permuted-mnist", "role": "evaluation"}
PRESET = {"method": "ImpressLearn", "setting": "the preset"}
INT4 = {"method": "linear probe", "setting": "int4"}
PCA = {"method": "PCA and linear probe", "setting": "64 components, int4"}
IN_2000, IN_500 = {**PRETRAINED, "budget": 2000}, {"budget": 500}
LEARNED = {"method": "ImpressLearn, features learned", "setting": "the preset's price"}
SUPSUP, WEIGHT = {"method": "SupSup"}, {"method": "ImpressLearn, a weight"}
MIXED = {"method": "heterogeneous", "masks": 20}
RIVALS = [
    ("fine-tuning", "image-network", ON_RESNET20, {"method": "fine-tuning"}, PRETRAINED),
    ("LoRA on images", "image-network", ON_IMAGES, {"method": "LoRA, coded"}, PRETRAINED),
    ("linear probe on images", "image-network", ON_IMAGES, INT4, PRETRAINED),
    ("LoRA on sentences", "sentences", ON_SENTENCES, {"method": "LoRA, coded"}, IN_2000),
    ("BitFit", "sentences", ON_SENTENCES, {"method": "BitFit"}, IN_2000),
    ("TinyLoRA", "sentences", ON_SENTENCES, {"method": "TinyLoRA, coded"}, IN_2000),
    ("linear probe on embeddings", "sentences", ON_SENTENCES, INT4, IN_2000),
    ("logistic regression per", "sentences", ON_CUSTOMERS, INT4, IN_500),
    ("PCA and logistic", "customers", ON_DIGITS, PCA, LEARNED),
    ("SupSup (ours: an integer", "frontier", ON_PERMUTATIONS, SUPSUP, WEIGHT),
    ("SupSup (ours: masks", "rotated-mnist", {}, {"method": "supsup"}, MIXED),
    ("a mask per task", "pretrained", {}, {"method": "SupSup"}, PRESET),
    ("a pruned copy", "pretrained", {}, {"setting": "sparsity 0.8"}, PRESET),
]
SETTINGS = {"sparsity 0.98": "price 0.5", "sparsity 0.95": "price 0.14"}
"""Of SupSup over random networks, and those of ours that take no more bytes."""


def front_row(name):
    """The cells of a rival's row on the front page."""
    text = PAGES["README.md"].read_text("utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith(f"| [{name}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def in_words(rows):
    """Accuracy and bytes per task, as the front page has them."""
    accuracy, size = (records.mean_of(rows, key).mean for key in ("accuracy", "bytes_per_task"))
    return f"{records.percent(accuracy)}, {records.size(round(size))}"


@pytest.mark.parametrize(("name", "record", "where", "theirs", "ours"), RIVALS)
def test_a_rival_on_the_front_page_has_the_numbers_of_its_record(name, record, where, theirs, ours):
    rows = records.read_rows(ROOT / "paper" / "results" / f"{record}.json")
    found = records.having(rows, **where)
    # Rows of development tasks have another role.
    rows = [row for row in found if row.get("role", "evaluation") == "evaluation"]
    cells = front_row(name)
    settings = SETTINGS.items() if record == "frontier" else [(None, None)]
    for place, (their_setting, our_setting) in enumerate(settings):
        them, us = records.having(rows, **theirs), records.having(rows, **ours)
        if their_setting:
            them = records.having(them, setting=their_setting)
            us = records.having(us, setting=our_setting)
        before = {(row["seed"], row["task"]): row["accuracy"] for row in them}
        apart = [100 * (row["accuracy"] - before[row["seed"], row["task"]]) for row in us]
        summary = records.summarise(apart)
        difference = records.signed(summary.mean)
        if len({row["seed"] for row in us}) == 1:
            difference += f" ± {summary.half_width:.1f}"
        shown = [cell.split("; ")[place] for cell in cells[1:4]]
        assert shown == [in_words(them), in_words(us), difference]


def test_rivals_of_single_inputs_have_the_numbers_of_their_record():
    rows = records.read_rows(ROOT / "paper" / "results" / "class-incremental.json")
    found = records.having(rows, benchmark="incremental-efficientnet")
    rows = {row["method"]: row for row in found}
    share = {name: records.percent(row["class_il"]) for name, row in rows.items()}
    size = {name: records.size(row["state_bytes"]) for name, row in rows.items()}
    ours = f"{share['ImpressLearn']}; {size['ImpressLearn']} in all"
    several, ranpac = front_row("one head for all"), front_row("RanPAC")
    names = ("finetuned_head", "ewc", "replay", "der++")
    percents = [share[name].removesuffix("%") for name in names]
    assert several[1:3] == [f"{', '.join(percents)}%; {size['der++']} in all", ours]
    assert ranpac[1:3] == [f"{share['ranpac']}; {size['ranpac']} in all", ours]


def test_every_figure_is_on_a_page():
    text = "".join(path.read_text("utf-8") for path in PAGES.values())
    figures = (ROOT / "paper" / "results" / "figures").glob("*.svg")
    assert [figure.name for figure in figures if figure.name not in text] == []


def test_nothing_is_forgotten_in_the_record():
    rows = records.read_rows(ROOT / "paper" / "results" / "forgetting.json")
    learned = records.having(rows, method="ImpressLearn")
    same = records.having(learned, identical=1.0)
    assert f"logits of {len(same)} of {len(learned)} tasks" in PAGE
