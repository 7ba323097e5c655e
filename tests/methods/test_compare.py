"""Comparisons over seeds: grids, cache, workers, tables, tests and figures."""

import json
import os
import re
import sys
from types import ModuleType

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from torch import nn

import impresslearn as il
from impresslearn.methods import comparing
from impresslearn.methods.comparison import Comparison, Run
from impresslearn.methods.evaluation import Evaluation
from impresslearn.methods.run_cache import digest
from impresslearn.statistics import holm, paired_test
from toys import blobs, mlp

STREAM = {f"t{i}": (blobs(i, classes=2), blobs(i, classes=2)) for i in range(3)}


class NearestMean:
    """Predicts the class with the nearest mean."""

    def __init__(self, seed, power=2):
        self.power, self.means = power, {}

    def learn_task(self, name, data):
        labels = np.unique(data.labels)
        self.means[name] = labels, [data.inputs[data.labels == k].mean(0) for k in labels]

    def predict(self, inputs, task):
        labels, means = self.means[task]
        distances = [((inputs - mean).abs() ** self.power).sum(1) for mean in means]
        return labels[np.argmin(distances, 0)]


def evaluation(accuracy):
    """Two tasks that end at this accuracy."""
    matrix = ((0.0, 0.0), (accuracy, 0.0), (accuracy, accuracy))
    return Evaluation(("a", "b"), 0, matrix, {"a": 10, "b": 20}, {}, None, 1.0)


def compared(**accuracies):
    runs = []
    for method, values in accuracies.items():
        runs += [Run(method, {}, seed, evaluation(each)) for seed, each in enumerate(values)]
    return Comparison(tuple(runs))


def test_a_grid_is_run_over_seeds_and_goes_on_from_its_cache(tmp_path, capsys):
    methods, cache = {"mine": (NearestMean, {"power": [1, 2]})}, tmp_path / "runs"

    def run(seeds, known):
        result = il.compare(methods, STREAM, seeds=seeds, cache=cache)
        lines = capsys.readouterr().err
        assert f"compare: {2 * seeds} runs, {known} of them in " in lines
        assert lines.count(": accuracy ") == 2 * seeds - known
        return result, lines

    (first, lines), (again, _) = run(2, known=0), run(2, known=4)
    place = "[2/4] mine, power=1, seed 1: "
    assert f"{place}task 1/3 t0\n{place}task 2/3 t1\n{place}task 3/3 t2\n{place}accuracy" in lines
    done = r"; 2 of 4 done after [0-9.]+ s, [0-9.]+ s left\n"
    assert re.search(done + r"\[3/4\] mine, power=2, seed 0: task 1/3 t0\n", lines)
    assert again.rows("runs") == first.rows("runs")
    assert list(first.groups) == ["mine, power=1", "mine, power=2"]
    files = sorted(cache.iterdir())
    assert [json.loads(file.read_text())["method"] for file in files] == ["mine"] * 4
    files[0].write_text("damaged")
    run(3, known=3)


def test_all_methods_learn_the_same_tasks_whatever_their_basis():
    methods, how = {"none": NearestMean, "one": NearestMean}, {"basis": {"one": 1}}
    result = il.compare(methods, STREAM, progress=False, **how)
    assert [run.evaluation.tasks for run in result.runs] == [("t1", "t2"), ("t0", "t1", "t2")]
    result = il.compare(methods, STREAM, evaluate_on=["t1", "t0"], progress=False, **how)
    assert [run.evaluation.tasks[-2:] for run in result.runs] == [("t1", "t0")] * 2


@pytest.mark.parametrize("backend", ["loky", pytest.param("ray", marks=pytest.mark.nightly)])
def test_workers_give_the_results_of_one_process(backend, capfd, monkeypatch, tmp_path):
    methods, saved = {"mine": NearestMean}, []
    alone = il.compare(methods, STREAM, seeds=2, progress=False)
    # Workers of an earlier test would go on writing to the standard error of that test.
    get_reusable_executor().shutdown(wait=True)
    if backend == "ray":
        environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
        pytest.importorskip("ray").init(num_cpus=2, runtime_env=environment)
    # This process writes the cache: workers may be on other machines.
    monkeypatch.setattr(comparing, "save_run", lambda file, *_: saved.append(file))
    both = il.compare(methods, STREAM, seeds=2, workers=2, backend=backend, cache=tmp_path)
    assert (both.rows(), len(saved)) == (alone.rows(), 2)
    lines = capfd.readouterr().err
    assert "[2/2] mine, seed 1: task 3/3 t2" in lines or backend == "ray"  # its log comes later
    assert all(line in lines for line in ("; 2 at a time\n", "[2/2] mine, seed 1: accuracy"))


def test_a_digest_follows_code_and_the_values_it_uses(monkeypatch):
    def made(width, shift=0):
        return lambda inputs: inputs[:, :width] + shift

    assert digest(made(3)) == digest(made(3)) != digest(made(4))
    classes = [type("C", (), {"__new__": staticmethod(lambda cls, n=n: n)}) for n in (1, 2)]
    assert digest(classes[0]) != digest(classes[1])
    assert digest(frozenset("ab")) == digest(frozenset("ba")) != digest(frozenset("ac"))
    pairs = [(made(3), made(3, shift=1)), (lambda: 1, lambda: 2), (il.Recipe(), il.Recipe(lr=0.5))]
    pairs += [(np.arange(3), np.arange(3.0)), ((b"a", b"bc"), (b"ab", b"c")), (np.exp, np.log)]
    pairs += [(re.compile("a"), re.compile("b")), (np.zeros(1, "i4,i4"), np.zeros(1, "i4,f4"))]
    network = mlp()
    smooth = nn.Sequential(network[0], nn.Tanh(), *network[2:])
    pairs += [(il.adapt(network), il.adapt(smooth)), (lambda x, y: y, lambda x, *y: y)]
    tried = "try:\n  f()\n", "except: h()\n"
    sources = "  g()\n".join(tried), "".join(tried) + "else: g()"
    pairs += [[compile(source, "", "exec") for source in sources]]
    helpers = [ModuleType("helper"), ModuleType("helper")]
    monkeypatch.setitem(sys.modules, "helper", helpers[0])
    for rate, helper in enumerate(helpers):  # one file, with a function of another file
        helper.__file__, helper.count = __file__, made(3)
        helper.count.rate = rate
    pairs.append(helpers)
    assert all(digest(one) != digest(other) for one, other in pairs)


def test_tests_are_paired_by_seed_and_corrected_by_holm():
    result = compared(a=[0.9, 0.91, 0.92, 0.9, 0.93], b=[0.8, 0.83, 0.81, 0.8, 0.85], c=[0.5] * 5)
    rows = result.tests()
    assert [(row["method"], row["against"]) for row in rows] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert rows[0]["difference"] == pytest.approx(0.094)
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    difference, p_value = paired_test([1, 2, 3, 4, 5], [0, 1, 2, 3, 4])
    assert (difference.mean, p_value) == (1, None)
    assert compared(a=[0.9], b=[0.8]).tests()[0]["p_value"] is None


def test_tables_figures_and_files(tmp_path):
    five = compared(ours=[0.9, 0.91, 0.92, 0.9, 0.93], theirs=[0.8, 0.83, 0.81, 0.8, 0.85])
    assert re.search("(?s)→ ours +91.2 ± 1.6%.*corrected by Holm", str(five))
    assert "<td>→ ours</td>" in five._repr_html_()
    assert "90.0% [80.0, 100.0]" in str(compared(ours=[0.8, 1.0]))
    assert list(five.to_frame())[:4] == ["method", "seed", "task", "phase"]
    assert five.to_frame("runs")["accuracy"][:5].mean() == pytest.approx(0.912)
    for suffix, start in (("svg", b"<svg"), ("pdf", b"%PDF"), ("png", b"\x89PNG")):
        file = tmp_path / f"chart.{suffix}"
        five.chart().save(file)
        assert file.read_bytes().startswith(start)
    runs = [Run("a", {"bytes_at_most": k, "lr": None}, 0, evaluation(0.23)) for k in (1000, 1024)]
    drawn = json.dumps(Comparison(tuple(runs)).heatmap("bytes_at_most", "lr").to_dict())
    assert re.search('"x": "1024", .*"value": 0.23', drawn)  # not "1.0 kB", as 1000 would be
    longer = Evaluation(tuple("abc"), 0, ((0.9,) * 3,) * 4, {}, {}, None, 1.0)
    uneven = Comparison((Run("a", {}, 0, longer), Run("a", {}, 1, evaluation(0.7))))
    assert "of 2 or 3 learned tasks" in str(uneven)
    assert '"y": 0.8' in json.dumps(uneven.chart().to_dict())
    begun = Evaluation(tuple("abc"), 2, ((0.9, 0.9, 0.5),) * 4, {}, {}, None, 1.0)
    drawn = json.dumps(Comparison((Run("a", {}, 0, begun),)).chart().to_dict())
    assert ('"y": 0.5' in drawn, '"y": 0.9' in drawn) == (True, False)  # 0.9: of basis tasks


def test_unequal_training_is_reported():
    def tuned(seed, steps):
        recipe = il.Recipe(epochs=0, min_steps=steps, batch_size=16)
        network = il.create_backbone("lenet_300_100", 2, in_features=16, widths=(8, 8))
        return il.FineTuning(network, recipe=recipe, seed=seed)

    with pytest.warns(UserWarning, match="train on different numbers of images per task"):
        il.compare({"tuned": (tuned, {"steps": [3, 6]})}, STREAM, progress=False)
