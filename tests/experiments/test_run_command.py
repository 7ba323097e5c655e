"""`impresslearn run`: the examples of docs/run.md, one's own Python, stopping and going on."""

import contextlib
import csv
import json
import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from impresslearn import ImpressLearnError
from impresslearn.cli.experiments import run
from impresslearn.experiments.configuration import read_configuration
from impresslearn.experiments.configured_run import plan_run, run_plan
from impresslearn.experiments.trials import _differences
from impresslearn.report import markdown_of, read_record, write_csv, write_report
from impresslearn.report.quantities import size_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "run.md"
FENCED = re.compile(r"```(?:toml|python)\n# (\S+)\n(.*?)```", re.DOTALL)
EXAMPLES: dict[str, str] = dict(FENCED.findall(DOCUMENT.read_text(encoding="utf-8")))
MODULE = EXAMPLES["blobs.py"]
ONE = EXAMPLES["blobs.toml"].replace("min_steps = 60", "min_steps = 5")
CHOOSE = ONE + "\n[run]\nvalidation = 0.2\n"


def command(*arguments):
    app = typer.Typer()
    app.command()(run)
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def written(folder, **files):
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def keys_of(path):
    return {part.job.key for part in plan_run(read_configuration(path)).parts}


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The first example of the document, run as it stands."""
    folder = written(tmp_path_factory.mktemp("example"), digits__toml=EXAMPLES["digits.toml"])
    plan = command(folder / "digits.toml", "--dry-run")
    assert plan.splitlines()[1].split("\t") == ["impresslearn", "0", "to run"]
    assert "rotated_digits: 6 tasks" in plan
    assert [path.name for path in folder.iterdir()] == ["digits.toml"], "nothing is written"
    return folder, json.loads(command(folder / "digits.toml", "--json", "--processes", 1))


def test_the_example_gives_the_numbers_of_the_document(example):
    folder, summary = example
    assert (summary["tasks"], summary["seeds"], summary["parts_run"]) == (6, [0, 1], 8)
    assert summary["record"] == str(folder / "results" / "digits.json")
    text, found = DOCUMENT.read_text(encoding="utf-8"), summary["methods"]
    assert len(found) == 4
    for each in found:
        told = rf"^\| {each['method']} \| ([\d.]+)% \| ([-+\d.]+) points \|.*\| ([\d.]+ k?B) \|$"
        line = re.search(told, text, re.MULTILINE)
        assert line is not None, each
        # Other builds of torch round otherwise; what the document says must stay what happens.
        assert 100 * each["average_accuracy"] == pytest.approx(float(line[1]), abs=5)
        assert 100 * each["forgetting"] == pytest.approx(float(line[2]), abs=5)
        assert each["bytes_per_task"] == pytest.approx(size_of(line[3]), rel=0.05)
        if each["method"] != "finetuning":
            assert each["forgetting"] == each["backward_transfer"] == 0
    assert found[1]["bytes_per_task"] < found[2]["bytes_per_task"]


def test_the_sweep_of_the_document_is_a_part_for_each_value(tmp_path):
    path = written(tmp_path, choose__toml=EXAMPLES["choose.toml"]) / "choose.toml"
    parts = plan_run(read_configuration(path)).parts
    assert [part.columns["method"] for part in parts] == [
        *(f"impresslearn, bit price {price}" for price in (0.1, 0.3, 1.0)),
        *(f"supsup, sparsity {sparsity}" for sparsity in (0.8, 0.9, 0.95)),
    ]


def test_a_method_that_tells_nothing_of_itself_is_drawn_all_the_same(tmp_path):
    """It has no bytes, no role and no forward transfer, and no other method that has them."""
    method = EXAMPLES["mine.py"] + "\n\ndef make_one():\n    return One()\n"
    method += """

class One:
    def learn_task(self, name, data):
        self.label = data.labels[0]

    def predict(self, inputs, task):
        return [self.label] * len(inputs)

    def score(self, data, task):
        return sum(data.labels == self.label) / len(data.labels)
"""
    text = """
    stream = { name = "rotated_digits", tasks = 2 }
    backbone = { name = "lenet_300_100", widths = [8] }
    method = [{ module = "mine:make_one", label = "one" }]
    """
    path = written(tmp_path, one__toml=text, mine__py=method) / "one.toml"
    assert "–" in command(path, "--processes", 1)
    record = read_record(tmp_path / "results" / "one.json")
    assert [figure.kind for figure in record.figures] == ["line", "heatmap"]
    assert "forward" not in markdown_of(record)
    write_report([record], tmp_path / "report.html")
    rows, means = (path.read_text().splitlines() for path in write_csv([record], tmp_path))
    assert len(rows) == 1 + len(record.rows)
    assert means[0].split(",") == [
        "table",
        "method",
        "measure",
        "unit",
        "mean",
        "half_width",
        "over",
        "n",
    ]
    assert len(means) == 4  # accuracy, forgetting, backward transfer


def test_the_record_can_be_drawn(example, tmp_path):
    record = read_record(example[0] / "results" / "digits.json")
    assert len(record.rows) == 4 * 2 * (7 * 6 + 6 + 1) + 6  # pairs of methods
    assert [figure.kind for figure in record.figures] == ["line", "bar"] + ["heatmap"] * 4
    assert "average accuracy" in markdown_of(record)
    write_report([record], tmp_path / "report.html")
    assert "Bytes per task" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_methods_are_compared_in_pairs_of_equal_seeds(example):
    rows = read_record(example[0] / "results" / "digits.json").rows
    of = {
        name: [100 * row["average_accuracy"] for row in rows
               if row["method"] == name and "average_accuracy" in row]
        for name in ("impresslearn", "supsup")
    }  # fmt: skip
    found = [row for row in rows if "against" in row]
    row = next(row for row in found if {row["method"], row["against"]} == set(of))
    pairs = zip(of[row["method"]], of[row["against"]], strict=True)
    one, other = (first - second for first, second in pairs)
    assert row["seeds"] == 2
    assert row["difference"] == pytest.approx((one + other) / 2)
    assert row["half_width"] == pytest.approx(12.706 * abs(one - other) / 2, rel=1e-3)
    assert all(each["p_value"] <= each["corrected_p_value"] <= 1 for each in found)


def test_methods_that_no_seed_changes_are_not_tested():
    found = {"varies": (0.5, 0.6, 0.9), "fixed": (0.7, 0.7, 0.7), "fixed too": (0.8, 0.8, 0.8)}
    rows = [
        {"method": method, "seed": seed, "average_accuracy": value}
        for method, values in found.items()
        for seed, value in enumerate(values)
    ]
    pairs = {(row["method"], row["against"]): row for row in _differences(rows)}
    assert pairs["fixed", "fixed too"]["difference"] == pytest.approx(-10)
    assert "p_value" not in pairs["fixed", "fixed too"]
    tested = pairs["varies", "fixed too"]  # the surer one of two tests
    assert tested["corrected_p_value"] == pytest.approx(2 * tested["p_value"])
    assert not list(_differences([row for row in rows if row["seed"] == 0]))


def test_a_second_run_does_nothing_again(example):
    folder, first = example
    again = json.loads(command(folder / "digits.toml", "--json", "--processes", 1))
    assert again == first | {"parts_run": 0}
    plan = json.loads(command(folder / "digits.toml", "--dry-run", "--json"))
    assert all(part["finished"] for part in plan["parts"])


def test_image_folders_are_found_from_the_file_and_a_change_counts(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    files = [
        tmp_path / "images" / task / part / label / "1.png"
        for task, part, label in product("ab", ("train", "test"), "xy")
    ]
    for file in files:
        file.parent.mkdir(parents=True)
        image.new("RGB", (4, 4), (200 * (file.parent.name == "x"), 0, 0)).save(file)
    text = """
    stream = { name = "from_folder", root = "images" }
    backbone = { name = "lenet_300_100", widths = [8] }
    method = [{ name = "supsup", recipe = { epochs = 0, min_steps = 2 } }]
    run = { order = "given" }
    """
    path = written(tmp_path, images__toml=text) / "images.toml"
    monkeypatch.chdir("/")
    summary = json.loads(command(path, "--json", "--processes", 1))
    assert (summary["stream"], summary["tasks"]) == ("images", 2)
    rows = read_record(tmp_path / "results" / "images.json").rows
    assert [row["task"] for row in rows if "role" in row] == ["a", "b"]
    keys = [keys_of(path)]
    assert keys_of(path) == keys[0]
    os.utime(files[0], ns=(0, 0))
    keys.append(keys_of(path))
    image.new("RGB", (2, 2)).save(files[0].with_name("2.png"))
    keys.append(keys_of(path))
    assert len(set().union(*keys)) == 3


def test_a_part_that_fails_says_which_it_is(tmp_path):
    diverging = ONE.replace("min_steps = 5", "min_steps = 5, lr = 1e38")
    written(tmp_path, blobs__toml=diverging, blobs__py=MODULE)
    with pytest.raises(ImpressLearnError, match="impresslearn, seed 0: task 'blobs-"):
        command(tmp_path / "blobs.toml", "--processes", 1)


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("import no_such_package_at_all", "blobs.py:1: ModuleNotFoundError: "),
        ("def make_stream(tasks)", "blobs.py: SyntaxError: "),
        ("make_stream = 3", "has no function 'make_stream'"),
        (MODULE.replace("tasks)", "count)"), "make_stream() got an unexpected keyword"),
        (MODULE.replace("return {f", "raise ValueError('no')\n    return {f"), "ValueError: no"),
        (MODULE.replace("return {f", "return 3\n    return {f"), "tasks must map task names"),
        (MODULE.replace("return nn.Sequential(*layers)", "return layers"), "adapt takes an nn.Mod"),
        (MODULE.replace("Linear(16,", "Linear(17,"), "[backbone]: Sequential cannot take"),
    ],
)
def test_mistakes_in_the_users_python_are_told_in_a_line(tmp_path, module, says):
    written(tmp_path, blobs__toml=ONE, blobs__py=module)
    with pytest.raises(ImpressLearnError) as caught:
        command(tmp_path / "blobs.toml", "--dry-run")
    assert says in str(caught.value)


def test_a_change_of_own_python_or_of_the_data_that_it_reads_counts(tmp_path):
    """The module may import its neighbours."""
    reading = "2 * float(open(__file__ + '.data').read())"
    module = "from blob_parts_of_this_test import *\n" + MODULE.replace("2 *", f"{reading} *")
    path = written(tmp_path, blobs__toml=ONE, blob_parts_of_this_test__py="A = 1\n")
    found = []
    for scale, more in (("1", ""), ("1", ""), ("2", ""), ("2", "\n# changed\n")):
        written(tmp_path, blobs__py__data=scale, blobs__py=module + more)
        found.append(keys_of(path / "blobs.toml"))
    assert found[0] == found[1]
    assert not found[1] & found[2]
    assert not found[2] & found[3]


def test_a_method_of_ones_own_takes_part(tmp_path):
    text = ONE + '[[method]]\nmodule = "mine:make"\nlabel = "mine"\nlr = 0.02\n'
    mine = EXAMPLES["mine.py"].replace("min_steps=60", "min_steps=5")
    written(tmp_path, blobs__toml=text, blobs__py=MODULE, mine__py=mine)
    summary = json.loads(command(tmp_path / "blobs.toml", "--processes", 1, "--json"))
    found = summary["methods"][-1]
    assert found["method"] == "mine"
    assert found["average_accuracy"] > 0.3
    unknown = [key for key, value in found.items() if value is None]
    assert unknown == ["forward_transfer", "bytes_per_task"]
    rows = read_record(tmp_path / "results" / "blobs.json").rows
    assert all(row["seen"] for row in rows if row["method"] == "mine" and "learned" in row)
    before = keys_of(tmp_path / "blobs.toml")
    written(tmp_path, mine__py=mine + "# changed\n")
    assert len(before - keys_of(tmp_path / "blobs.toml")) == 1, "the change concerns one part"
    written(tmp_path, blobs__toml=text.replace("lr = 0.02", "lr = 0.02\nrate = 1"))
    with pytest.raises(ImpressLearnError, match=r"\[\[method\]\] 'mine': mine.py: TypeError: make"):
        keys_of(tmp_path / "blobs.toml")


def test_classical_models_take_part(tmp_path):
    text = """
    stream = { name = "permuted_digits", tasks = 2 }
    backbone = { name = "lenet_300_100", widths = [16] }
    method = [{ name = "logistic_regression", C = 0.1 }, { name = "svc", features = "backbone" }]
    """
    path = written(tmp_path, digits__toml=text) / "digits.toml"
    linear, kernel = json.loads(command(path, "--processes", 1, "--json"))["methods"]
    assert linear["bytes_per_task"] == 4 * 10 * (64 + 1) + 2
    assert kernel["bytes_per_task"] > 4 * 10 * 16
    assert linear["average_accuracy"] > kernel["average_accuracy"] > 0.8
    assert linear["forward_transfer"] is None
    before = keys_of(path)
    written(tmp_path, digits__toml=text.replace("0.1", "0.2"))
    assert len(before & keys_of(path)) == 1


def test_heads_of_their_own(tmp_path):
    """A network of ten outputs, tasks of three classes."""
    text = """
    stream = { module = "blobs:make_stream", tasks = 2 }
    backbone = { module = "blobs:make_network", width = 32, head = "own" }
    run = { out = "out" }

    [[method]]
    name = "impresslearn"
    random_masks = 4
    granularity = "unit"
    task_recipe = { epochs = 0, min_steps = 60, lr = 0.03 }

    [[method]]
    name = "separate"
    recipe = { epochs = 0, min_steps = 60, lr = 0.01 }
    """
    network = MODULE.replace("nn.Linear(width, num_classes)]", "nn.Linear(width, 10)]")
    path = written(tmp_path, heads__toml=text, blobs__py=network) / "heads.toml"
    ours, separate = json.loads(command(path, "--processes", 1, "--json"))["methods"]
    assert min(ours["average_accuracy"], separate["average_accuracy"]) > 0.9
    written(tmp_path, heads__toml=text.replace('"separate"', '"finetuning"'))
    with pytest.raises(ImpressLearnError, match='head="shared"'):
        keys_of(path)


STOP = """
    here = __import__("pathlib").Path(__file__).parent
    if (here / "kill").exists() and list(here.glob("results/cache/*/??/*.json")):
        __import__("os")._exit(9)
"""


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(tmp_path):
    stops = MODULE.replace('from_arrays` takes it."""', f'from_arrays` takes it."""{STOP}')
    written(tmp_path, blobs__toml=ONE, blobs__py=stops, kill="")
    arguments = [sys.executable, "-m", "impresslearn", "run", str(tmp_path / "blobs.toml")]
    done = subprocess.run([*arguments, "--processes", "1"], capture_output=True, check=False)
    assert done.returncode == 9, done.stderr
    assert not (tmp_path / "results" / "blobs.json").exists()
    (tmp_path / "kill").unlink()
    plan = plan_run(read_configuration(tmp_path / "blobs.toml"))
    assert [part.columns["method"] for part in plan.missing()] == ["separate"]
    ran = []
    resumed = run_plan(plan, 1, lambda job, outcome: ran.append(job.settings["method"]["name"]))
    assert ran == ["separate"]
    path = written(tmp_path, other__toml=ONE + "[run]\nout = 'o'") / "other.toml"
    whole = run_plan(plan_run(read_configuration(path)), 2)  # in worker processes
    assert whole["rows"] == resumed["rows"]


def test_event_files_for_tensorboard(tmp_path, monkeypatch):
    told = []

    class Writer(contextlib.nullcontext):
        def __init__(self, folder):
            super().__init__(self)
            Path(folder).mkdir(parents=True)
            self.method = Path(folder).parent.name

        def add_scalar(self, tag, value, step):
            told.append((self.method, tag, value, step))

    board = type(sys)("torch.utils.tensorboard")
    board.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    text = ONE.replace('"separate"', '"separate"\nlabel = "a / b"') + "[run]\ntensorboard = 'runs'"
    written(tmp_path, blobs__toml=text, blobs__py=MODULE)
    command(tmp_path / "blobs.toml", "--processes", 1, "--quiet")
    assert {folder for folder, *_ in told} == {"impresslearn", "a___b"}
    average = [(value, step) for who, tag, value, step in told if tag == "average_accuracy"]
    assert [step for _, step in average] == [1, 2, 3, 4] * 2
    assert all(0 <= value <= 1 for value, _ in average)
    count = len(told)
    command(tmp_path / "blobs.toml", "--processes", 1, "--quiet")
    assert len(told) == count


def test_settings_are_chosen_on_validation_examples(tmp_path):
    folder = written(tmp_path, blobs__py=MODULE, blobs__toml=ONE, choose__toml=CHOOSE)
    assert keys_of(folder / "blobs.toml").isdisjoint(keys_of(folder / "choose.toml"))
    stream = plan_run(read_configuration(folder / "choose.toml")).stream
    assert [len(stream[0].train), len(stream[0].test)] == [72, 18]
    told = json.loads(command(folder / "choose.toml", "--json", "--processes", 1))
    record = read_record(folder / "results" / "choose.json")
    assert record.data.endswith("; scored on validation examples")
    scores = [row["accuracy"] for row in record.rows if "learned" in row]
    assert {round(18 * each, 9) % 1 for each in scores} == {0}
    assert len(told["methods"]) == 2
    for change, tables in (("", 2), ('\nreference = "separate"', 3)):  # with or without tests
        text = f"{CHOOSE}seeds = [0, 1]{change}\n"
        path = written(tmp_path, two__toml=text) / "two.toml"
        plan = plan_run(read_configuration(path)).target().plan("small")
        assert len(plan.tables) == tables
    too_few = written(tmp_path, odd__toml=CHOOSE.replace("0.2", "1.0")) / "odd.toml"
    with pytest.raises(ImpressLearnError, match=r"\[run\]: validation must be less than 1, got 1"):
        read_configuration(too_few)


def test_a_grid_is_a_method_for_each_combination(tmp_path):
    grid = "grid = { random_masks = [2, 4], recipe = [{ epochs = 0, min_steps = 5 }] }"
    text = ONE.replace("random_masks = 10\n", "").replace("recipe = {", f"{grid}\n#", 1)
    seeds = '[run]\nseeds = [0, 1]\nreference = "separate"\n'
    folder = written(tmp_path, blobs__py=MODULE, blobs__toml=text + seeds)
    told = json.loads(command(folder / "blobs.toml", "--json", "--processes", 1))
    masks = "impresslearn, random masks {}, recipe epochs 0, min steps 5"
    labels = [masks.format(2), masks.format(4), "separate"]
    assert [each["method"] for each in told["methods"]] == labels
    record = read_record(folder / "results" / "blobs.json")
    pairs = [(row["method"], row["against"]) for row in record.rows if "difference" in row]
    assert pairs == [(label, "separate") for label in labels[:2]]
    _, means = (path.read_text() for path in write_csv([record], tmp_path))
    head, *rows = csv.reader(means.splitlines())
    differences = [dict(zip(head, row, strict=True)) for row in rows if "difference" in row]
    assert [each["unit"] for each in differences] == ["percentage points"] * 2
    assert all(each["half_width"] and each["corrected_p_value"] for each in differences)
    assert [each["n"] for each in differences] == ["2", "2"]
    assert not {"half_width", "p_value"} & {row[head.index("measure")] for row in rows}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("grid = 3", r"\[\[method\]\]: grid lists values, as \{ lr = \[0.01, 0.03\] \}, got 3"),
        ("grid = { sparsity = [] }", r"grid lists values, as .*, got \{'sparsity': \[\]\}"),
        ("grid = { random_masks = [1] }", "random_masks stands in it and in its grid"),
        ("grid = { sparsity = [1.5] }", "'impresslearn, sparsity 1.5': sparsity is the fraction"),
        ("[run]\nreference = 'other'", "reference is 'other', the methods are impresslearn, sep"),
    ],
)
def test_grids_and_references_that_cannot_be_are_a_line(tmp_path, change, line):
    text = ONE.replace("random_masks = 10", f"random_masks = 10\n{change}")
    text = ONE + change if change.startswith("[run]") else text
    path = written(tmp_path, odd__toml=text, blobs__py=MODULE) / "odd.toml"
    with pytest.raises(ImpressLearnError, match=line):
        plan_run(read_configuration(path))


GUESSING = """
import impresslearn as il


class Guessing(il.SupSup):
    def infer_task(self, inputs):
        return min(self.tasks_)


def make(backbone):
    return Guessing(backbone, basis_recipe=il.Recipe(epochs=0, min_steps=5))


class Wrong(Guessing):
    def infer_task(self, inputs):
        return 3


def wrong(backbone):
    return Wrong(backbone)
"""


def test_tasks_are_inferred_where_a_run_asks_for_it(tmp_path):
    methods = '[[method]]\nname = "supsup"\nrecipe = { epochs = 0, min_steps = 60 }\n'
    methods += '[[method]]\nmodule = "guessing:make"\nlabel = "guessing"\n'
    text = f"{ONE}{methods}[run]\ntask_inference = 8\n"
    folder = written(tmp_path, blobs__toml=text, blobs__py=MODULE, guessing__py=GUESSING)
    told = json.loads(command(folder / "blobs.toml", "--processes", 1, "--json"))
    found = {each["method"]: each for each in told["methods"]}
    assert found["separate"]["task_inference_accuracy"] is None
    assert found["supsup"]["task_inference_accuracy"] > 0.5
    assert found["guessing"]["task_inference_accuracy"] == 0.25
    assert found["guessing"]["unnamed_accuracy"] < found["guessing"]["average_accuracy"]
    shown = markdown_of(read_record(folder / "results" / "blobs.json"))
    assert "| task inference accuracy | unnamed accuracy |" in shown
    assert "25.0%" in shown
    written(tmp_path, blobs__toml=text.replace("= 8", "= 91"))
    line = r"\[run\]: task_inference = 91, but a task has 90 examples to be scored on"
    with pytest.raises(ImpressLearnError, match=line):
        keys_of(tmp_path / "blobs.toml")
    written(tmp_path, blobs__toml=text.replace("guessing:make", "guessing:wrong"))
    line = "infer_task of Wrong must return a task's name, or a TaskGuess, got 3"
    with pytest.raises(ImpressLearnError, match=line):
        command(tmp_path / "blobs.toml", "--processes", 1)
