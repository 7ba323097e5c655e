"""Every mistake in a configuration is one line that names the file and the key."""

import sys

import pytest

from impresslearn import ImpressLearnError, MissingDependencyError
from impresslearn.experiments.configuration import read_configuration
from impresslearn.experiments.configured_run import plan_run
from impresslearn.experiments.work.custom import in_order
from impresslearn.streams import permuted_digits

STREAM = '[stream]\nname = "permuted_digits"\ntasks = 3\n'
BACKBONE = '[backbone]\nname = "lenet_300_100"\nwidths = [16]\n'
METHOD = '[[method]]\nname = "impresslearn"\nbasis = 1\n'
RUN = "[run]\nseeds = [0]\n"
GOOD = STREAM + BACKBONE + METHOD + RUN


def written(folder, text, name="config.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path):
    with pytest.raises(ImpressLearnError) as caught:
        plan_run(read_configuration(path))
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    return line.removeprefix(f"{path}: ")


NETWORK = 'name = "lenet_300_100"\nwidths = [16]'
FOLDER = '[stream]\nname = "from_folder"\n'
CHANGES = [  # what of GOOD is replaced, by what, and what the line says
    ("[run]", "[runs]", "no key 'runs'; did you mean 'run'?"),
    ('name = "permuted_digits"\n', "", "[stream]: needs name"),
    ('"permuted_digits"', "3", "[stream]: name must be a valid string, got 3"),
    (
        "permuted_digits",
        "digits",
        "got 'digits'; did you mean 'rotated_digits' or 'permuted_digits'?",
    ),
    ("tasks", "task", "[stream]: permuted_digits has no setting 'task'"),
    ("tasks = 3", "tasks = 1", "at least two tasks"),
    ("tasks = 3", "tasks = 2020-01-01", "[stream]: tasks must be a text, a fin"),
    (STREAM, FOLDER, "needs the setting 'root'"),
    (STREAM, FOLDER + "root = 3\n", "root must be a text"),
    (STREAM, '[stream]\nmodule = "../x:y"\n', 'module must be "file:function"'),
    (STREAM, '[stream]\nmodule = "nope:f"\n', "[stream]: module 'nope:f': there"),
    ("widths", "width", "[backbone]: lenet_300_100: got an unexpected"),
    ("widths = [16]", "seed = 3", "[backbone]: seed is given by [run] seeds"),
    ("widths = [16]", "num_classes = 3", "[backbone]: num_classes = 3, but"),
    ("widths = [16]", "in_features = 9", "[backbone]: lenet_300_100 expects 9"),
    (NETWORK, 'module = "a:b"\nnorm = 3', "[backbone]: norm must be a valid string, got 3"),
    ('name = "impresslearn"\n', "", "[[method]] 1: needs name"),
    ("impresslearn", "imprint", "[[method]] 1 (imprint): no method 'imprint'"),
    ("basis", "bases", "(impresslearn): impresslearn has no setting 'bases'"),
    ("basis = 1", "basis = true", "[[method]] 1: basis must be a valid integer, got True"),
    ("basis = 1", "basis = 0", "needs basis or random_masks"),
    ("basis = 1", "random_masks = -1", "random_masks must be an integer of at least 0"),
    ("basis = 1", "basis = 3", "basis = 3 leaves no task to learn"),
    ("basis = 1", 'basis = 1\nlabel = " "', "[[method]] 1: label must have"),
    ("basis = 1", "basis = 1\nsparsity = '0.9'", "'impresslearn': sparsity must be a number"),
    ("basis = 1", 'basis = 1\npreset = "best"', "the preset must be one of default, "),
    ("basis = 1", "basis = 1\npreprocessing = 1", "preprocessing is that of the stream"),
    ("basis = 1", "basis = 1\nrecipe = { epoch = 3 }", "did you mean 'epochs' or "),
    ("basis = 1", "basis = 1\nrecipe = { lr = -1 }", "(impresslearn): lr must"),
    ("basis = 1", "basis = 1\nbackbone = { seed = 1 }", "1: backbone seed is given"),
    ("basis = 1", 'basis = 1\nbackbone = { name = "x" }', "name and module stand in [backbo"),
    ("impresslearn", "supsup", "(supsup): it has no masks of basis tasks"),
    ("impresslearn", "svc", "(svc): it has no masks of basis tasks"),
    (
        METHOD,
        '[[method]]\nname = "svc"\ngama = 1\n',
        "svc has no setting 'gama'; did you mean 'gamma'",
    ),
    (METHOD, METHOD + METHOD, "two [[method]] are called 'impresslearn'"),
    ("[0]", "[0]\nepochs = 3", "[run] has no key 'epochs'"),
    ("[0]", "[1, 1]", "[run]: seeds must be distinct"),
    ("[0]", '[0]\norder = "random"', "[run]: order must be 'shuffled' or 'given'"),
    (GOOD, "stream = ", "is no TOML"),
    (GOOD, "", "the table [stream] is missing"),
    (METHOD, "", "there is no [[method]]"),
    (STREAM, 'stream = "digits"\n', "[stream]: must be a table, got 'digits'"),
    ("[[method]]", "[method]", "[method]: must be a valid list"),
    (GOOD, "method = [1]\n" + STREAM + BACKBONE, "[[method]] 1: must be a table"),
]


@pytest.mark.parametrize(("before", "after", "says"), CHANGES)
def test_one_line_names_file_and_key(tmp_path, before, after, says):
    assert before in GOOD
    assert says in refusal(written(tmp_path, GOOD.replace(before, after)))


def test_a_file_that_cannot_be_read_or_named(tmp_path):
    assert refusal(tmp_path / "none.toml").startswith("cannot be read: ")
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    assert refusal(tmp_path / "config.toml") == "is no text in UTF-8"
    assert "name must be plain" in refusal(written(tmp_path, GOOD, "my run.toml"))


def test_tensorboard_is_missed_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    path = written(tmp_path, GOOD + 'tensorboard = "runs"\n')
    with pytest.raises(MissingDependencyError, match="pip install 'impresslearn\\[tensorboard\\]'"):
        plan_run(read_configuration(path))


def test_defaults_and_recipes(tmp_path):
    more = 'recipe = { lr = 0.5 }\ntask_recipe = { lr = 0.25 }\npreset = "paper_lenet"\n'
    found = read_configuration(written(tmp_path, STREAM + BACKBONE + METHOD + more))
    assert (found.run.seeds, found.run.order, found.out) == ([0], "shuffled", tmp_path / "results")
    (method,) = found.method
    assert method.label == "impresslearn"
    kept = method.in_keys()
    assert (kept["basis_recipe"]["lr"], kept["task_recipe"]["lr"]) == (0.5, 0.25)
    assert (kept["task_recipe"]["optimizer"], kept["settings"]["score_rule"]) == (
        "rmsprop",
        "score",
    )


def test_a_seed_orders_the_tasks():
    stream = permuted_digits(6)
    orders = [[task.name for task in in_order(stream, seed, "shuffled")] for seed in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]
    assert sorted(orders[0]) == sorted(stream.names)
    assert in_order(stream, 1, "given").names == stream.names


def test_a_change_concerns_only_the_parts_that_it_changes(tmp_path):
    def keys(text):
        plan = plan_run(read_configuration(written(tmp_path, text)))
        return [part.job.key for part in plan.parts]

    base = STREAM + BACKBONE + METHOD + '[[method]]\nname = "supsup"\n'
    first = keys(base + RUN)
    assert keys(base.replace("basis = 1", "basis = 1\nlabel = 'x'") + RUN) == first
    changed = keys(base.replace("basis = 1", "basis = 2") + RUN)
    assert changed[0] != first[0]
    assert changed[1] == first[1]
    assert set(first) < set(keys(base + "[run]\nseeds = [0, 7]\n"))
