"""`ImpressLearner`: one frozen network, a bank of masks, and any number of tasks.

`learn_basis` trains an impression with edge-popup and adds it to the bank; `learn_task` learns a
new task's coefficients over the bank; neither changes anything that an earlier task uses. All
verbs commit at their end: an error leaves the learner as it was.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import count as count_from
from itertools import repeat
from typing import Any

import numpy as np
from torch import Tensor, nn

from impresslearn.adaptation import COEFFICIENT_RECIPE, learn_coefficients
from impresslearn.backbones import Backbone
from impresslearn.bank import MaskBank
from impresslearn.candidates import candidates
from impresslearn.data import TensorBatches, to_batches
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.export import FinishedTask, export_module
from impresslearn.inference import TaskGuess, guess_task
from impresslearn.intake import Prepared, checked_examples, checked_inputs, training_examples
from impresslearn.ledger import Ledger
from impresslearn.mixing import Coefficients, CoefficientSpec, check_bit_price
from impresslearn.prediction import Statistics, TrainingPhase
from impresslearn.presets import preset as find_preset
from impresslearn.progress import progress_for
from impresslearn.quantisation import PRECISIONS
from impresslearn.rows import labels_by_task, named, row_names
from impresslearn.settings import mask_recipe, plain_settings, task_recipe
from impresslearn.sources import POPUP_RECIPE, draw_masks, train_mask, train_masks_in_turn
from impresslearn.sparsity import ones_per_layer
from impresslearn.stopwatch import Note, Stopwatch
from impresslearn.store import write_store
from impresslearn.tasks import TaskTable
from impresslearn.together import (
    alike,
    learn_coefficients_together,
    train_masks_together,
    wanted,
)
from impresslearn.training import Recipe


class ImpressLearner:
    """Learns tasks one after another on a frozen backbone; forgets nothing.

    backbone: from `create_backbone` or `adapt`. bank: masks to start from (a random bank, say);
    empty by default. sparsity: fraction of zeros of trained masks, in [0, 1). allocation: how the
    ones spread over layers, "erdos_renyi" or "uniform". granularity: coefficients per mask and
    "layer" (the paper) or output "unit". output_scale, input_scale: a learned scale on top.
    precision: what coefficients are stored and used in: float32, float16, int8, int5, int4, or
    coded (learned as whole numbers, a bit of which costs bit_price bits of the examples' loss).
    penalty: λ of eq. 2. basis_recipe, task_recipe: how masks and coefficients are optimised.
    score_rule: whether edge-popup ranks the "score" or its "magnitude". seed: of everything that
    is drawn; each mask or task learned takes the next one. progress: True, False, or "auto" (shown
    on a terminal). cache_bytes: memory for the weights of the tasks predicted last; 0 keeps none.

    Attributes: `bank_` (MaskBank), `tasks_` (name -> TaskInfo), `coefficients_` (name ->
    Coefficients), `shared_statistics_` (norm statistics that all tasks share, or None).
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        bank: MaskBank | None = None,
        sparsity: float = 0.9,
        allocation: str = "erdos_renyi",
        granularity: str = "layer",
        output_scale: bool = False,
        input_scale: bool = False,
        precision: str = "float32",
        bit_price: float = 1.0,
        penalty: float = 0.0,
        basis_recipe: Recipe = POPUP_RECIPE,
        task_recipe: Recipe = COEFFICIENT_RECIPE,
        score_rule: str = "magnitude",
        seed: int = 0,
        progress: bool | str = "auto",
        cache_bytes: int = 256 * 1024**2,
    ) -> None:
        if not isinstance(backbone, Backbone):
            raise InputError(
                "backbone must come from create_backbone or adapt, got "
                f"{type(backbone).__name__}; wrap your own module with adapt(module)"
            )
        if precision not in PRECISIONS:
            raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
        if bank is not None and bank.layers != backbone.layers:
            raise InputError("the bank's masks belong to other layers than the backbone's")
        self.backbone = backbone
        self.sparsity = sparsity
        self.allocation = allocation
        self.granularity = granularity
        self.output_scale = output_scale
        self.input_scale = input_scale
        self.precision = precision
        self.bit_price = check_bit_price(bit_price)
        self.penalty = penalty
        self.basis_recipe = basis_recipe
        self.task_recipe = task_recipe
        self.score_rule = score_rule
        self.seed = seed
        self.progress = progress
        self.cache_bytes = cache_bytes
        self._ones = ones_per_layer(backbone.layers, sparsity, allocation)
        price = self.bit_price if precision == "coded" else None
        self._spec = CoefficientSpec(granularity, output_scale, input_scale, price)
        masks = MaskBank(backbone.layers, backbone.device) if bank is None else bank
        self._ledger = Ledger(backbone, masks, cache_bytes)

    @classmethod
    def from_preset(cls, backbone: Backbone, name: str, **overrides: Any) -> ImpressLearner:
        """A learner with the settings of a preset (see `impresslearn.presets`), some overridden."""
        return cls(backbone, **{**find_preset(name).learner_settings(), **overrides})

    def __repr__(self) -> str:
        return f"ImpressLearner({self.backbone!r}, {self.bank_!r}, {self.tasks_!r})"

    @property
    def bank_(self) -> MaskBank:
        """The masks."""
        return self._ledger.bank

    @property
    def tasks_(self) -> TaskTable:
        """All tasks, name -> TaskInfo, in the order they were learned."""
        return self._ledger.tasks

    @property
    def shared_statistics_(self) -> Statistics | None:
        """Norm statistics that all tasks share; None where there are none."""
        return self._ledger.shared

    @property
    def coefficients_(self) -> dict[str, Coefficients]:
        """The coefficients of every learned task, as stored (rounded where so asked)."""
        return {
            task.name: self._ledger.coefficients(task)
            for task in self.tasks_.all()
            if task.role == "learned"
        }

    def learn_basis(
        self, name: str, data: Any, *, seed: int | None = None, note: Note | None = None
    ) -> ImpressLearner:
        """Trains an impression on a task with edge-popup and adds it to the bank.

        The task is then predicted with its own mask. data: whatever `as_examples` takes. note: JSON
        values to keep in the task's history. Raises InputError for a taken name, unusable data or
        more classes than the backbone has outputs.
        """
        self._ledger.refuse_taken([name])
        examples, classes = training_examples(self.backbone, data)
        seed = self._next_seed() if seed is None else seed
        phase = TrainingPhase.begin(self.backbone, self.shared_statistics_)
        source = to_batches(examples, classes, self.backbone.device)
        watch = Stopwatch(len(examples), note)
        title = progress_for(self.progress).titled(f"basis {name}")
        how = (self._ones, self.basis_recipe, seed, self.score_rule, phase, title)
        trained = train_mask(self.backbone, source, len(classes), *how)
        recipe, metrics = {name: mask_recipe(self, seed)}, watch.metrics(trained.fit)
        prepared = (examples, classes)
        self._ledger.commit_basis({name: trained.mask}, recipe, prepared, phase, metrics)
        return self

    def learn_homogeneous(
        self,
        name: str,
        data: Any,
        count: int,
        *,
        seeds: Sequence[int] | None = None,
        batched: bool | None = None,
        note: Note | None = None,
    ) -> ImpressLearner:
        """Adds `count` impressions of one task, trained from different seeds.

        They are named name, name/1, name/2, …; the first one is the task's own mask. Each depends
        on its seed alone, so they may as well be trained apart. batched: as in `learn_tasks`;
        note: as in `learn_basis`.
        """
        if count < 1 or (seeds is not None and not len(seeds) == len(set(seeds)) == count):
            raise InputError(f"count >= 1 needs as many distinct seeds, got {count}, {seeds}")
        names = [f"{name}/{number}" if number else name for number in range(count)]
        self._ledger.refuse_taken(names)
        examples, classes = training_examples(self.backbone, data)
        chosen = list(seeds) if seeds is not None else [self._next_seed() + i for i in range(count)]
        source = to_batches(examples, classes, self.backbone.device)
        first = TrainingPhase.begin(self.backbone, self.shared_statistics_)
        watch = Stopwatch(len(examples), note)
        title = progress_for(self.progress).titled(f"{count} masks of {name}")
        how = (self._ones, self.basis_recipe, chosen, self.score_rule, first, title)
        if wanted(self.backbone, batched) and isinstance(source, TensorBatches):
            masks = train_masks_together(self.backbone, source, len(classes), *how)
        else:
            masks = train_masks_in_turn(self.backbone, source, len(classes), *how)
        recipes = {each: mask_recipe(self, seed) for each, seed in zip(names, chosen, strict=True)}
        named, prepared = dict(zip(names, masks, strict=True)), (examples, classes)
        self._ledger.commit_basis(named, recipes, prepared, first, watch.metrics())
        return self

    def add_random_masks(self, count: int, *, seed: int | None = None) -> ImpressLearner:
        """Appends random masks of the learner's sparsity and allocation to the bank."""
        seed = self.seed if seed is None else seed
        how = (self.sparsity, self.allocation, seed)
        self._ledger.commit_masks(draw_masks(self.bank_, count, *how))
        return self

    def learn_task(
        self, name: str, data: Any, *, seed: int | None = None, note: Note | None = None
    ) -> ImpressLearner:
        """Learns a new task's coefficients over the masks that the bank holds now.

        data: whatever `as_examples` takes; a few labelled examples suffice. note: as in
        `learn_basis`. Raises as that, and InputError while the bank is empty.
        """
        self._ledger.refuse_task(name)
        examples, classes = training_examples(self.backbone, data)
        phase = TrainingPhase.begin(self.backbone, self.shared_statistics_)
        seed, watch = self._next_seed() if seed is None else seed, Stopwatch(len(examples), note)
        source = to_batches(examples, classes, self.backbone.device)
        title = progress_for(self.progress).titled(f"task {name}")
        how = (self._spec, self.task_recipe, self.penalty, seed, phase, title)
        coefficients, result = learn_coefficients(
            self.backbone, self.bank_, source, len(classes), *how
        )
        prepared, metrics = (examples, classes), watch.metrics(result)
        recipe = task_recipe(self, seed)
        self._ledger.commit_learned(
            name, coefficients, self.precision, prepared, phase, recipe, metrics
        )
        return self

    def learn_tasks(
        self, tasks: Mapping[str, Any], *, batched: bool | None = None
    ) -> ImpressLearner:
        """Learns several new tasks, name -> data, over the masks that the bank holds now.

        The same as `learn_task` one by one. batched: whether tasks of the same sizes are optimised
        side by side, as many as the memory holds, and kept together (equal up to rounding; tasks of
        other sizes follow); by default on a GPU only. A network for which it would not be the same
        learns one by one: one that gathers norm statistics or draws random numbers, say.
        """
        for name in tasks:
            self._ledger.refuse_task(name)
        prepared = {name: training_examples(self.backbone, data) for name, data in tasks.items()}
        seeds = dict(zip(tasks, count_from(self._next_seed()), strict=False))
        groups = alike(prepared) if wanted(self.backbone, batched) else [[name] for name in tasks]
        for names in groups:
            self._learn_together({name: prepared[name] for name in names}, seeds)
        return self

    def _learn_together(self, tasks: Mapping[str, Prepared], seeds: Mapping[str, int]) -> None:
        phase = TrainingPhase.begin(self.backbone, self.shared_statistics_)
        watch = Stopwatch(len(next(iter(tasks.values()))[0]))
        how = (self._spec, self.task_recipe, self.penalty, seeds, phase)
        title = progress_for(self.progress).titled(f"{len(tasks)} tasks")
        parts = learn_coefficients_together(self.backbone, self.bank_, tasks, *how, title)
        for names, found in parts:
            for name, coefficients in zip(names, found or repeat(None), strict=False):
                if coefficients is None:
                    self.learn_task(name, tasks[name][0], seed=seeds[name])
                    continue
                recipe, metrics = task_recipe(self, seeds[name]), watch.metrics()
                self._ledger.commit_learned(
                    name, coefficients, self.precision, tasks[name], phase, recipe, metrics
                )

    def logits(self, inputs: Any, task: str) -> Tensor:
        """A task's logits (n, K), K its number of classes, on the backbone's device."""
        view = self._ledger.view(self.tasks_.learned(task))
        return view.logits(self.backbone, checked_inputs(self.backbone, inputs))

    def predict(self, inputs: Any, task: str | Sequence[str] | None = None) -> np.ndarray:
        """The labels of inputs (n, ...): an array (n,) of labels as they were learned.

        task: one name for all rows, a sequence of n names (a mixed batch; each row is computed with
        the rows of the same task), or None: the task is inferred from the inputs, which must then
        all belong to one. Raises UnknownTaskError for a name that was never learned, and where the
        inputs look like none of the tasks.
        """
        values = checked_inputs(self.backbone, inputs)
        if task is None:
            guess = self.infer_task(values)
            if guess.unknown:
                raise UnknownTaskError(f"the inputs look like none of the tasks: {guess.summary()}")
            task = guess.best
        if isinstance(task, str):
            return self._labels(values, task)
        names = row_names(task, len(values))
        for name in dict.fromkeys(names):
            self.tasks_.learned(name)
        return labels_by_task(values, names, self._labels)

    def score(self, data: Any, task: str) -> float:
        """The accuracy of a task on labelled data, in [0, 1]."""
        learned = self.tasks_.learned(task)
        examples = checked_examples(self.backbone, data)
        source = to_batches(examples, learned.classes, self.backbone.device)
        return self._ledger.view(learned).accuracy(self.backbone, source)

    def infer_task(
        self,
        inputs: Any,
        *,
        method: str = "halving",
        among: str | Sequence[str] = "all",
        **settings: Any,
    ) -> TaskGuess:
        """The task of unlabelled inputs, all of one task.

        method: "halving", "one_shot" or "alpha" (the paper's optimisation of the coefficients; see
        `impresslearn.inference` for each method's settings). among: "all" tasks, those of role
        "basis" or "learned", or a sequence of names.
        """
        return guess_task(
            self.backbone,
            self.bank_,
            candidates(self._ledger, among),
            checked_inputs(self.backbone, inputs),
            method,
            shared=self.shared_statistics_,
            **settings,
        )

    def predict_with(self, inputs: Any, guess: TaskGuess) -> np.ndarray:
        """Labels from the mixture that `infer_task(method="alpha")` optimised."""
        if guess.mixture is None:
            raise InputError(f"a guess by {guess.method!r} holds no mixture; use method='alpha'")
        logits = guess.mixture.logits(self.backbone, checked_inputs(self.backbone, inputs))
        return named(logits, self.tasks_.learned(guess.best).classes)

    def statistics_of(self, task: str) -> Statistics | None:
        """The norm statistics that a task is computed with; None where its network has none."""
        return self._ledger.statistics(self.tasks_.learned(task))

    def finished(self, task: str) -> FinishedTask:
        """A task with its weights, as the writers of `impresslearn.export` take it."""
        return FinishedTask.of(self._ledger, task)

    def export(self, task: str) -> nn.Module:
        """A plain module that computes a task's logits and needs nothing of this library."""
        return export_module(self.finished(task))

    def save(
        self,
        path: str | os.PathLike,
        *,
        tasks: Sequence[str] | None = None,
        weights: str = "stored",
        overwrite: bool = False,
    ) -> ImpressLearner:
        """Writes everything to one new file, whole or not at all; `load` and `open_store` read it.

        tasks: only these and the masks they need. weights: "stored", or "seed" to keep only the
        network's settings and its SHA-256. Raises InputError for a path that is taken, unless
        `overwrite`, and StoreError where it cannot be written.
        """
        how: dict[str, Any] = {"names": tasks, "weights": weights, "overwrite": overwrite}
        write_store(self._ledger, plain_settings(self), path, **how)
        return self

    def close(self) -> None:
        """Lets go of the file of a learner from `open_store`; nothing for one in memory."""
        self._ledger.journal.close()

    def __enter__(self) -> ImpressLearner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bind(self, ledger: Ledger) -> None:
        """Continues from what was committed elsewhere."""
        self._ledger = ledger

    def _next_seed(self) -> int:
        return self.seed + self._ledger.trained()

    def _labels(self, inputs: Tensor, task: str) -> np.ndarray:
        learned = self.tasks_.learned(task)
        return named(self._ledger.view(learned).logits(self.backbone, inputs), learned.classes)
