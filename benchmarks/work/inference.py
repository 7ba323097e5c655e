"""Jobs about whose inputs these are: masks on other tasks, tasks without a name, and no task."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from benchmarks.jobs import JobContext, Outcome
from benchmarks.streams.clinc import clinc150_sentences, sentence_encoder
from benchmarks.work.inputs import TaskData, load_backbone, load_bank, load_task, statistics_of
from impresslearn.coefficients.masks import masked_weights, mixture_of
from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.data import classes_of
from impresslearn.data.preprocessing import Prepared
from impresslearn.inference import KnownTask, guess_task
from impresslearn.inference.unknown import TaskProfile, distances, exceeded_by, signals
from impresslearn.learner import ImpressLearner
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import Statistics, TaskView, accuracy_of
from impresslearn.training.loop import Recipe, entropies

Settings = Mapping[str, Any]
# Of a task's test set, evenly spread; a thousand tasks' images would fill the memory.
KEPT_INPUTS = 1000
REJECTED = 0.05  # share of own inputs that a threshold rejects in comparisons


def judge_foreign_mask(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """X: the needed mask alone on another task, nothing learned. Values: task, accuracy."""
    backbone, task = load_backbone(settings, place), load_task(settings, place)
    classes = len(classes_of(task.test.labels))
    statistics = statistics_of(backbone, needs[0])
    view = _basis_task(backbone, load_bank(backbone, needs), 0, classes, statistics).view()
    return Outcome({"task": task.name, "accuracy": accuracy_of(backbone, view, task.test)})


def compare_masks(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """Pairwise Jaccard overlap of the needed masks, and of independent masks of their densities.

    Values: measured and expected, means over pairs; by_layer and expected_by_layer likewise.
    """
    overlap = load_bank(load_backbone(settings, place), needs).overlap()
    pairs = ~torch.eye(len(needs), dtype=torch.bool)
    values: dict[str, Any] = {}
    for name in ("measured", "expected"):
        values[name] = float(getattr(overlap, name)[pairs].mean())
    for name in ("by_layer", "expected_by_layer"):
        values[name] = [float(layer[pairs].mean()) for layer in getattr(overlap, name)]
    return Outcome(values)


def infer_task(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """One of the bank's tasks without its name: found or not, and the accuracy that follows.

    Settings: stream, task (its position in the stream), position (in the bank), backbone, method
    (of `guess_task`), method_settings, inputs (unlabelled examples of the task that
    are looked at, from the test set). Values: task, found (1.0 or 0.0), accuracy on the whole test
    set, known_accuracy with the right mask.
    """
    backbone = load_backbone(settings, place)
    bank = load_bank(backbone, needs)
    name, _, test = load_task(settings, place)
    classes = len(classes_of(test.labels))
    choices = []
    for position, outcome in enumerate(needs):
        statistics = statistics_of(backbone, outcome)
        choices.append(_basis_task(backbone, bank, position, classes, statistics))
    count = min(settings["inputs"], len(test))
    chosen = np.random.default_rng(0).choice(len(test), count, replace=False)
    how = settings.get("method_settings", {})
    guess = guess_task(backbone, bank, choices, test.inputs[chosen], settings["method"], **how)
    best, right = int(guess.best), settings["position"]
    view, known = guess.mixture or choices[best].view(), choices[right].view()
    values = {"task": name, "found": float(best == right)}
    values["accuracy"] = accuracy_of(backbone, view, test)
    return Outcome(values | {"known_accuracy": accuracy_of(backbone, known, test)})


def _basis_task(
    backbone: Backbone, bank: MaskBank, position: int, classes: int, statistics: Statistics | None
) -> KnownTask:
    """The task of the mask at a position of the bank."""
    name = bank.names[position]

    def mixture() -> Coefficients:
        one_mask = torch.zeros(len(bank), device=backbone.device)
        one_mask[position] = 1
        return mixture_of(one_mask, bank.layers)

    def view() -> TaskView:
        return TaskView(masked_weights(bank, backbone.weights, name), statistics, classes)

    return KnownTask(str(position), classes, view, None, mixture)


def tell_tasks(settings: Settings, needs: Sequence[Outcome], place: JobContext) -> Outcome:
    """Learns the tasks of a stream and finds them again, by every method, among more and more.

    Settings: stream, backbone, seed, random (of `load_bank`) and recipe, or else the preset for
    separate heads; labels: examples per task; tasks: how many are learned, the numbers
    that are chosen among, `counts`; inputs: numbers of unlabelled ones; methods; trials; unseen:
    tasks at the stream's end that are not learned.
    Values: rows, {search, tasks, inputs, found, seconds} for each, and {foreign, inputs, score,
    auroc, false_accept, accepted} of inputs of no task: false_accept at 5% of own batches rejected,
    accepted by the library's own threshold, which the row of own batches has too.
    """
    learner, tests = _learned(settings, place)
    rows: list[dict[str, Any]] = []
    for count, size in product(settings["counts"], settings["inputs"]):
        names = list(tests)[:count]
        for method in settings["methods"]:
            is_found, seconds = [], []
            for trial in range(settings["trials"]):
                name = names[trial * len(names) // settings["trials"]]
                batch = _draw(tests[name], size, trial)
                begun = time.perf_counter()
                guess = learner.infer_task(Prepared(batch), method=method, among=names)
                seconds.append(time.perf_counter() - begun)
                is_found.append(guess.best == name)
            row = {"kind": "search", "search": method, "tasks": count, "inputs": size}
            middle = round(float(np.median(seconds)), 4)
            rows.append({**row, "found": float(np.mean(is_found)), "seconds": middle})
    rows += _foreign_rows(learner, tests, settings, place)
    return Outcome({"rows": rows})


def _learned(settings: Settings, place: JobContext) -> tuple[ImpressLearner, dict[str, Tensor]]:
    """The learner, and the test inputs of each task."""
    backbone = load_backbone(settings, place)
    if "random" in settings:
        learner = ImpressLearner(
            backbone,
            bank=load_bank(backbone, (), settings["random"]),
            granularity="unit",
            task_recipe=Recipe(**settings["recipe"]),
            progress=False,
        )
    else:
        learner = ImpressLearner.from_preset(backbone, "pretrained", progress=False)
    tests = {}
    for number in range(settings["tasks"]):
        task = load_task({**settings, "task": number}, place)
        learner.learn_task(task.name, task.train, seed=settings["seed"])
        tests[task.name] = _inputs(task)
    return learner, tests


def _inputs(task: TaskData) -> Tensor:
    """A task's test inputs, at most about `KEPT_INPUTS`."""
    inputs = task.test.inputs[:: max(1, len(task.test) // KEPT_INPUTS)]
    return inputs.to(torch.float32, copy=True)  # a view would keep all


def _draw(inputs: Tensor, count: int, seed: int) -> Tensor:
    chosen = np.random.default_rng(seed).choice(len(inputs), count, replace=len(inputs) < count)
    return inputs[chosen]


def _foreign_rows(
    learner: ImpressLearner, tests: Mapping[str, Tensor], settings: Settings, place: JobContext
) -> Iterator[dict[str, Any]]:
    """How well each score separates inputs of no task from inputs of a learned task."""
    names = list(tests)[: min(settings["counts"])]
    own_inputs = {name: tests[name][len(tests[name]) // 2 :] for name in names}
    kinds = dict(_foreign(settings, place, tests))
    for size in settings["unknown_inputs"]:
        chosen = [(names[trial % len(names)], trial) for trial in range(settings["unknown_trials"])]
        own = [_draw(own_inputs[name], size, trial) for name, trial in chosen]
        scores = _scores(learner, names, own)
        accepted = float(np.mean(scores["the default"] <= 0))
        row = {"kind": "foreign", "foreign": "none: own inputs", "inputs": size}
        yield {**row, "score": "the default", "accepted": accepted}
        for kind, inputs in kinds.items():
            foreign = _scores(learner, names, [_draw(inputs, size, trial) for _, trial in chosen])
            labels = np.repeat([0, 1], len(chosen))
            for score in scores:
                limit = np.quantile(scores[score], 1 - REJECTED)
                row = {"kind": "foreign", "foreign": kind, "inputs": size, "score": score}
                both = np.concatenate([scores[score], foreign[score]]).clip(-1e9, 1e9)
                row["auroc"] = round(float(roc_auc_score(labels, both)), 4)
                row["false_accept"] = float(np.mean(foreign[score] <= limit))
                if score == "the default":
                    row["accepted"] = float(np.mean(foreign[score] <= 0))
                yield row


def _scores(learner: ImpressLearner, names: list[str], batches: Sequence[Tensor]) -> pd.DataFrame:
    """A row for each batch, by the task that fits it best: higher is more foreign."""
    rows = []
    for batch in batches:
        guess = learner.infer_task(Prepared(batch), among=names)
        best = guess.best
        logits = learner.logits(Prepared(batch), best)
        profile = learner.tasks_.stored(best).profile
        row = {
            "entropy": float(entropies(logits).mean()),
            "energy": -float(logits.logsumexp(dim=1).mean()),
            "largest logit": -float(logits.max(dim=1).values.mean()),
            "the default": np.log(guess.unknown_probability) - np.log(guess.posterior[best]),
        }
        if isinstance(profile, TaskProfile):  # others know features of their inputs instead
            (away,) = distances([profile], signals(learner.backbone, batch, logits))
            row["input statistics"] = float(exceeded_by(profile.limits, away))
        rows.append(row)
    return pd.DataFrame(rows)


def _foreign(
    settings: Settings, place: JobContext, tests: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Inputs of no learned task, by kind."""
    unseen = range(settings["tasks"], settings["tasks"] + settings["unseen"])
    if unseen:
        others = [load_task({**settings, "task": number}, place) for number in unseen]
        yield "unseen tasks", torch.cat(list(map(_inputs, others)))
    if settings["stream"]["name"] == "clinc150":
        folder = Path(place.data) / settings["stream"]["folder"]
        encode = sentence_encoder(folder)
        yield "out of scope", encode(clinc150_sentences(folder, "oos_test"))
        return
    held = torch.cat([inputs[: len(inputs) // 2][:512] for inputs in list(tests.values())[:10]])
    low, high = float(held.min()), float(held.max())
    generator = torch.Generator().manual_seed(0)
    yield "inverted", low + high - held
    yield "uniform noise", low + (high - low) * torch.rand(held.shape, generator=generator)
    yield "Gaussian noise", torch.randn(held.shape, generator=generator)
    if held.shape[-1] == 28:
        yield "letters", _letters(low, high)


def _letters(low: float, high: float) -> Tensor:
    """(520, 1, 28, 28): capital letters of Pillow's own font, each turned by its own angle."""
    from PIL import Image, ImageDraw, ImageFont

    font, turned = ImageFont.load_default(22), np.random.default_rng(0)
    pictures = []
    for number in range(520):
        picture = Image.new("L", (28, 28), 0)
        letter = chr(ord("A") + number % 26)
        ImageDraw.Draw(picture).text((14, 14), letter, fill=255, font=font, anchor="mm")
        angle = turned.uniform(0, 360)
        pictures.append(np.asarray(picture.rotate(angle, Image.Resampling.BILINEAR), np.float32))
    return low + (high - low) * torch.tensor(np.stack(pictures))[:, None] / 255
