"""The code, names and numbers of pages, and the sites of several versions."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

import impresslearn as il

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RESULTS = ROOT / "paper" / "results"
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


README = PAGES["README.md"].read_text("utf-8")
FRONT = " ".join(README.split())
PAGE = (DOCS / "reproduction.md").read_text("utf-8")


def rows_of(record, **wanted):
    """The rows of a committed record that have these values."""
    return records.having(records.read_rows(RESULTS / f"{record}.json"), **wanted)


CLAIMS = [
    ("a few masks combine well: rotated MNIST", "rotated-mnist", "heterogeneous", 20),
    ("the same on permuted MNIST", "permuted-mnist", "heterogeneous", 100),
    ("the same on permuted MNIST", "permuted-mnist", "supsup", None),
    ("the same on Split-CIFAR-100", "split-cifar100-wide", "heterogeneous", 15),
    ("the same on Split-CIFAR-100", "split-cifar100-wide", "supsup", None),
    ("five masks suffice", "rotated-mnist", "heterogeneous", 5),
    ("a mask of another task alone", "permuted-mnist", "X", 1),
    ("a mask of another task alone", "rotated-mnist", "X", 1),
    ("a mask of another task alone", "split-cifar100-wide", "X", 1),
    ("random masks lag", "random-masks", "random", 15),
    ("random masks lag", "random-masks", "random", 20),
    ("random masks lag", "random-masks", "homogeneous", 20),
    ("α-optimisation on rotations", "rotated-mnist", "GN", 20),
    ("α-optimisation on rotations", "split-cifar100-wide", "GN", 5),
    ("α-optimisation on rotations", "split-cifar100-wide", "GN", 15),
    ("homogeneous masks match", "permuted-mnist", "homogeneous", 100),
    ("the same on rotations", "rotated-mnist", "homogeneous", 20),
    ("one-shot inference, N = 100", "gn-comparison", "SupSup-GN", 100),
]


@pytest.mark.parametrize(("claim", "record", "method", "masks"), CLAIMS)
def test_a_verdict_has_the_number_of_its_record(claim, record, method, masks):
    gain = {"gain": 1.0} if record == "gn-comparison" else {}
    number = records.accuracy(rows_of(record, method=method, masks=masks, **gain))
    (line,) = [line for line in PAGE.splitlines() if line.startswith("|") and claim in line]
    assert number in line


def test_the_order_of_tasks_has_the_p_values_of_its_record():
    tests = rows_of("task-order", method="t-test")
    values = {(row["benchmark"], row["masks"]): row["p_value"] for row in tests}
    rotations, cifar = values["rotated-mnist", 5], values["split-cifar100", 5]
    corrected = f"{rotations * len(tests):.2f} corrected for {len(tests)} tests"
    assert f"p = {rotations:.3f} (the paper's test), {corrected}" in PAGE
    assert f"CIFAR-100: {cifar:.2f}" in PAGE


JUDGED = {"role": "evaluation"}  # rows of development tasks have another role
ON_IMAGES = {"benchmark": "image-network", **JUDGED}
ON_RESNET20 = {"benchmark": "image-network-resnet20", **JUDGED}
ON_SENTENCES = {"benchmark": "sentences", **JUDGED}
ON_CUSTOMERS = {"benchmark": "sentence-customers", **JUDGED}
ON_DIGITS = {"labels": 100, **JUDGED}
ON_PERMUTATIONS = {"benchmark": "permuted-mnist", **JUDGED}
PRESET = {"method": "ImpressLearn", "setting": "the preset"}
INT4 = {"method": "linear probe", "setting": "int4"}
# Readers of several blocks of the network.
BLOCKS = {"method": "ImpressLearn, all blocks", "setting": "pretrained"}
LAYERS = {"method": "ImpressLearn, two layers", "setting": "pretrained"}
BLOCKS_LORA = {"method": "LoRA, all blocks, coded"}
BLOCKS_INT4 = {"method": "linear probe, all blocks", "setting": "int4"}
LAYERS_INT4 = {"method": "linear probe, two layers", "setting": "int4"}
PCA = {"method": "PCA and linear probe", "setting": "64 components, int4"}
IN_500 = {"method": "ImpressLearn, few_labels", "budget": 500}
LEARNED = {"method": "ImpressLearn, features learned", "setting": "the preset's price"}
# SupSup's most accurate setting, and ours that takes no more bytes.
SUPSUP = {"method": "SupSup", "setting": "sparsity 0.95"}
WEIGHT = {"method": "ImpressLearn, a weight", "setting": "price 0.14"}
DEDICATED = {"method": "supsup"}
LORA = {"method": "LoRA", "setting": "rank 4, lr 0.003"}


def mixed(masks):
    """Rows of the paper's method."""
    return {"method": "heterogeneous", "masks": masks}


RIVALS = [
    ("fine-tuning", "image-network", ON_RESNET20, {"method": "fine-tuning"}, BLOCKS),
    ("LoRA on images, float32", "pretrained", JUDGED, LORA, PRESET),
    ("LoRA on images, coded", "image-network", ON_IMAGES, BLOCKS_LORA, BLOCKS),
    ("linear probe on images", "image-network", ON_IMAGES, BLOCKS_INT4, BLOCKS),
    ("LoRA on sentences", "sentences", ON_SENTENCES, {"method": "LoRA, coded"}, LAYERS),
    ("BitFit", "sentences", ON_SENTENCES, {"method": "BitFit, coded"}, LAYERS),
    ("linear probe on sentences", "sentences", ON_SENTENCES, LAYERS_INT4, LAYERS),
    ("linear probe per", "sentences", ON_CUSTOMERS, INT4, IN_500),
    ("PCA and linear", "customers", ON_DIGITS, PCA, LEARNED),
    ("SupSup, permuted MNIST, sparsity 0.95", "frontier", ON_PERMUTATIONS, SUPSUP, WEIGHT),
    ("SupSup, rotated MNIST", "rotated-mnist", {}, DEDICATED, mixed(20)),
    ("SupSup, permuted MNIST, sparsity 0.9,", "permuted-mnist", {}, DEDICATED, mixed(100)),
    ("SupSup, CIFAR-100", "split-cifar100-wide", {}, DEDICATED, mixed(15)),
    ("a mask per task", "pretrained", JUDGED, {"method": "SupSup"}, PRESET),
    ("a pruned network", "pretrained", JUDGED, {"setting": "sparsity 0.8"}, PRESET),
]


def front_row(name):
    """The cells of a rival's row on the front page."""
    (line,) = [line for line in README.splitlines() if line.startswith(f"| [{name}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def in_words(rows):
    """Accuracy and bytes per task, as the front page has them."""
    accuracy, size = (records.mean_of(rows, key).mean for key in ("accuracy", "bytes_per_task"))
    return f"{records.percent(accuracy)}, {records.size(round(size))}"


@pytest.mark.parametrize(("name", "record", "where", "theirs", "ours"), RIVALS)
def test_a_rival_on_the_front_page_has_the_numbers_of_its_record(name, record, where, theirs, ours):
    them, us = (rows_of(record, **where, **whose) for whose in (theirs, ours))
    before = {(row["seed"], row["task"]): row["accuracy"] for row in them}
    apart = [100 * (row["accuracy"] - before[row["seed"], row["task"]]) for row in us]
    summary = records.summarise(apart)
    difference = records.signed(summary.mean)
    if len({row["seed"] for row in us}) == 1:
        difference += f" ± {summary.half_width:.1f}"
    assert front_row(name)[1:4] == [in_words(them), in_words(us), difference]


def by_method(network):
    """The rows of single inputs over a network; of ours the last, with a class map."""
    rows = rows_of("class-incremental", benchmark=f"incremental-{network}")
    return {row["method"]: row for row in rows}


def test_rivals_of_single_inputs_have_the_numbers_of_their_record():
    ours = (rows := by_method("efficientnet"))["ImpressLearn"]
    for start, names in SINGLE_INPUTS.items():
        rivals = [rows[name] for name in names]
        apart = [records.signed(100 * (ours["class_il"] - row["class_il"])) for row in rivals]
        difference = " to ".join(dict.fromkeys([apart[0], apart[-1]]))
        theirs = "; ".join(map(in_all, rivals))
        assert front_row(start)[1:4] == [theirs, in_all(ours), difference]
    methods = [by_method(f"{network}-blocks") for network in ("efficientnet", "resnet20")]
    ranpac, mine = ([of[name] for of in methods] for name in ("ranpac", "ImpressLearn"))
    large, small = (
        100 * (a["class_il"] - b["class_il"]) for a, b in zip(ranpac, mine, strict=True)
    )
    assert f"RanPAC needs only {records.size(rows['ranpac']['bytes'])} of its" in FRONT
    assert f"{large:.1f} points ahead; over a ResNet-20, ours is {-small:.1f} ahead" in FRONT
    assert rows["ranpac"]["bytes"] < ours["bytes"]


SINGLE_INPUTS = {
    "one head for all tasks": ("replay", "der++"),
    "one linear classifier": ("joint",),
    "RanPAC": ("ranpac",),
}


def in_all(row):
    """Accuracy among all classes, and the bytes kept to learn on, as the front page has them."""
    return f"{records.percent(row['class_il'])}, {records.size(row['state_bytes'])}"


def by_mark(record, where):
    marks = {}
    for row in rows_of(record, **where):
        mark = row["method"], row["setting"], row.get("budget")
        marks.setdefault(mark, []).append(row)
    return marks


def test_accuracies_of_the_software_paper_are_of_records():
    text = " ".join((ROOT / "paper" / "joss.md").read_text("utf-8").split())
    shown = re.findall(r"([\d.]+%) in ([\d.]+ k?B)", text)
    known = [in_words(rows) for place in CHARTS for rows in by_mark(*place).values()]
    assert [each for each in shown if ", ".join(each) not in known] == []
    assert len(shown) == 9


CHARTS = ("image-network", ON_IMAGES), ("sentences", ON_SENTENCES), ("sentences", ON_CUSTOMERS)


def test_no_other_method_is_above_ours_in_the_chart_of_the_front_page():
    marks = by_mark("image-network", ON_IMAGES)
    means = {mark: records.mean_of(rows, "accuracy").mean for mark, rows in marks.items()}
    others = [means[mark] for mark in means if not mark[0].startswith("ImpressLearn")]
    assert means["ImpressLearn, all blocks", "pretrained", 2000] > max(others)
    lora, (best, size) = (each.split(", ") for each in front_row("LoRA on images, coded")[1:3])
    assert f"reach {best} in {size}, where LoRA reaches {lora[0]} in {lora[1]}" in FRONT
    ahead = "LoRA is ahead: {}, ours {}".format(*front_row("LoRA on images, float32")[1:3])
    assert ahead.replace("%,", "% in") in FRONT
    line = f"[No other method](docs/guide/images.md#measured) in this chart is above our {best}"
    assert line in FRONT


def test_masks_on_the_front_page_have_the_numbers_of_their_records():
    """Their bytes, and the new tasks from which on masks and mixtures take fewer than SupSup."""
    found = []
    cases = ("rotated-mnist", 20, 3), ("permuted-mnist", 100, 3), ("split-cifar100-wide", 15, 21)
    for record, masks, layers in cases:
        theirs, ours = (rows_of(record, **each) for each in (DEDICATED, mixed(masks)))
        them, us = (records.mean_of(rows, "bytes_per_task").mean for rows in (theirs, ours))
        # Beside numbers of four bytes, one per mask and layer, both keep the norms' statistics.
        total = masks * (them - us + 4 * layers * masks)
        found.append((records.size(round(total)), math.ceil(total / (them - us))))
    sizes, tasks = zip(*found, strict=True)
    assert "take {}, {} and {}".format(*sizes) in FRONT
    wanted = "at least {} new tasks (first of these rows), {} (second) or {} (third)"
    assert wanted.format(*tasks) in FRONT


def test_every_figure_is_on_a_page():
    text = "".join(path.read_text("utf-8") for path in PAGES.values())
    figures = (RESULTS / "figures").glob("*.svg")
    assert [figure.name for figure in figures if figure.name not in text] == []


def test_nothing_is_forgotten_in_the_record():
    learned = rows_of("forgetting", method="ImpressLearn")
    same = records.having(learned, identical=1.0)
    assert f"logits of {len(same)} of {len(learned)} tasks" in PAGE
