"""The paper's benchmarks at three scales: what `benchmarks.toml` says, and the jobs made of it.

A seed stands for a network and an order of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.jobs import Job
from benchmarks.targets.plan import table_of
from benchmarks.work.inference import infer_task
from benchmarks.work.learning import learn_by_settings, train_mask
from impresslearn.learner.presets import preset as find_preset
from impresslearn.training.loop import Recipe

OF_THE_DATA = ("size", "labels", "balanced")
HOMOGENEOUS = 1000  # score seeds of homogeneous masks begin here; others begin at 0


@dataclass(frozen=True)
class Benchmark:
    """A stream and a network with all that is needed to make jobs.

    - stream, backbone: settings without their seed
    - mask, task: settings of jobs that train masks and learn tasks
    - basis, unseen: tasks at the start of the stream for masks, and after them to learn
    - counts, repeats: numbers N of masks, and numbers of homogeneous masks
    - gn_inputs: unlabelled examples that inference may look at
    - gn_tasks: basis tasks, the first ones, whose name is withheld in turn
    """

    name: str
    data: str
    stream: Mapping[str, Any]
    backbone: Mapping[str, Any]
    mask: Mapping[str, Any]
    task: Mapping[str, Any]
    basis: int
    unseen: int
    counts: tuple[int, ...]
    repeats: tuple[int, ...]
    sparsities: tuple[float, ...]
    seeds: tuple[int, ...]
    gn_inputs: int = 2000
    gn_tasks: int = 10

    def unseen_tasks(self) -> range:
        """Positions of the tasks that are learned anew."""
        return range(self.basis, self.basis + self.unseen)

    def data_settings(self) -> dict[str, Any]:
        """The settings of `load_task` that say how much of a task's data is used."""
        return {key: self.task[key] for key in OF_THE_DATA if key in self.task}

    def place(self, seed: int, task: int) -> dict[str, Any]:
        """The settings that say where: stream, task and network."""
        return {
            "stream": {"seed": seed, **self.stream},
            "task": task,
            "backbone": {**self.backbone, "seed": seed},
        }

    def mask_job(
        self, seed: int, task: int, sparsity: float, scores: int = 0, **changes: Any
    ) -> Job:
        """Trains a mask on a task, from the scores of a seed."""
        settings = {**self.mask, "sparsity": sparsity, "seed": scores, **changes}
        return Job(train_mask, self.place(seed, task) | settings)

    def heterogeneous(self, seed: int, count: int, sparsity: float) -> tuple[Job, ...]:
        """One mask of each of the first tasks."""
        return tuple(self.mask_job(seed, task, sparsity) for task in range(count))

    def homogeneous(self, seed: int, count: int, sparsity: float) -> tuple[Job, ...]:
        """Masks of the first task, from different scores."""
        scores = range(HOMOGENEOUS, HOMOGENEOUS + count)
        return tuple(self.mask_job(seed, 0, sparsity, scores=score) for score in scores)

    def task_job(
        self,
        seed: int,
        task: int,
        needs: tuple[Job, ...] = (),
        granularity: str = "layer",
        **more: Any,
    ) -> Job:
        """Learns a task over masks, of needed jobs or random ones."""
        learner = {"penalty": self.task["penalty"], "granularity": granularity}
        settings = {"recipe": self.task["recipe"], "learner": learner, "seed": 0, **more}
        return Job(learn_by_settings, self.place(seed, task) | settings, needs)

    def gn_job(self, seed: int, task: int, masks: tuple[Job, ...], method: str, **more: Any) -> Job:
        """Finds one basis task of the bank without its name."""
        settings = {"position": task, "method": method, "inputs": self.gn_inputs, **more}
        return Job(infer_task, self.place(seed, task) | settings, masks)

    def independent(self, count: int, sparsity: float, seed: int) -> dict[str, Any]:
        """Settings of a bank of random masks, drawn independently, allocated as trained ones."""
        settings = {"count": count, "sparsity": sparsity, "seed": seed, "disjoint": False}
        allocation = self.mask["allocation"]
        return settings if allocation == "erdos_renyi" else settings | {"allocation": allocation}

    def described(self) -> dict[str, Any]:
        """The settings as they go into a record."""
        named = ("stream", "backbone", "mask", "task", "sparsities")
        return {name: getattr(self, name) for name in named} | {
            "basis_tasks": self.basis,
            "unseen_tasks": self.unseen,
            "unlabelled_inputs": self.gn_inputs,
        }


def find_benchmark(name: str, scale: str) -> Benchmark:
    """The benchmark of a name at a scale."""
    table = table_of("benchmarks.toml", f"{name}.{scale}")
    chosen = table.pop("preset", None)
    if chosen is not None:
        preset = find_preset(chosen)
        defaults = {
            "backbone": {"init": preset.init, "gain": preset.gain},
            "mask": {
                "allocation": preset.allocation,
                "rule": preset.score_rule,
                "recipe": preset.basis_recipe.settings(),
            },
            "task": {"recipe": preset.task_recipe.settings(), "penalty": preset.penalty},
        }
        table |= {key: defaults[key] | table.get(key, {}) for key in defaults}
    for key in ("mask", "task"):
        table[key] = {**table[key], "recipe": Recipe(**table[key]["recipe"]).settings()}
    lists = ("counts", "repeats", "sparsities", "seeds")
    table = {"name": name, "repeats": table["counts"]} | table
    return Benchmark(**table | {key: tuple(table[key]) for key in lists})
