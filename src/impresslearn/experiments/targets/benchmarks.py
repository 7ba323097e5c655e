"""The paper's benchmarks at three scales, as plain settings.

`paper` has its grid: five sparsities, three seeds of network and stream, all numbers of masks, its
optimiser for coefficients. `small` is one or two of each on real data, for two cores, with the best
settings found here (docs/decisions.md). `smoke` shows that everything runs, on data that need no
download. A seed stands for a network and an order of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from impresslearn.experiments.jobs import Job
from impresslearn.experiments.targets.plan import check_scale
from impresslearn.experiments.work.training import learn_task, train_mask
from impresslearn.learner.presets import preset
from impresslearn.optimisation.loop import Recipe

PAPER_SPARSITIES = (0.95, 0.92, 0.9, 0.85, 0.8)
PAPER_SEEDS = (0, 1, 2)
HOMOGENEOUS = 1000
"""Score seeds of homogeneous masks begin here, those of heterogeneous ones at 0."""


def disjoint_masks(count: int, seed: int = 0) -> dict[str, Any]:
    """Settings of a bank of random masks that share the weights out among themselves."""
    return {"count": count, "seed": seed, "disjoint": True}


@dataclass(frozen=True)
class Benchmark:
    """A stream and a network with all that is needed to make jobs.

    stream, backbone: settings without their seed; mask: settings of a "mask" job; task: of a "task"
    job; basis: tasks at the stream's begin that masks may be trained on; unseen: tasks at its end
    that are learned; counts: numbers N of masks; repeats: those of homogeneous ones; gn_inputs:
    unlabelled examples that inference may look at; gn_tasks: basis tasks, the first ones, whose
    name is withheld in turn.
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

    def stream_of(self, seed: int) -> dict[str, Any]:
        """Settings of the stream in the order of a seed."""
        return {**self.stream, "seed": seed}

    def network(self, seed: int) -> dict[str, Any]:
        """Settings of the network of a seed."""
        return {**self.backbone, "seed": seed}

    def unseen_tasks(self) -> range:
        """Positions of the tasks that are learned anew."""
        return range(self.basis, self.basis + self.unseen)

    def place(self, seed: int, task: int, order: int | None = None) -> dict[str, Any]:
        """The settings that say where: stream, task and network. order: another stream's seed."""
        stream = self.stream_of(seed if order is None else order)
        return {"stream": stream, "task": task, "backbone": self.network(seed)}

    def mask_job(
        self, seed: int, task: int, sparsity: float, scores: int = 0, order: int | None = None
    ) -> Job:
        """Trains a mask on a task, from the scores of a seed."""
        own = {**self.mask, "sparsity": sparsity, "seed": scores}
        return Job(train_mask, self.place(seed, task, order) | own)

    def heterogeneous(
        self, seed: int, count: int, sparsity: float, order: int | None = None
    ) -> tuple[Job, ...]:
        """One mask of each of the first tasks."""
        return tuple(self.mask_job(seed, task, sparsity, order=order) for task in range(count))

    def homogeneous(self, seed: int, count: int, sparsity: float) -> tuple[Job, ...]:
        """Masks of the first task, from different scores."""
        return tuple(
            self.mask_job(seed, 0, sparsity, HOMOGENEOUS + number) for number in range(count)
        )

    def task_job(
        self, seed: int, task: int, needs: tuple[Job, ...], order: int | None = None, **own: Any
    ) -> Job:
        """Learns a task over masks; `own` overrides the benchmark's settings."""
        settings = {**self.task, "seed": 0, **own}
        return Job(learn_task, self.place(seed, task, order) | settings, needs)

    def independent(self, count: int, sparsity: float, seed: int) -> dict[str, Any]:
        """Settings of a bank of random masks, drawn independently, allocated as trained ones."""
        settings = {"count": count, "sparsity": sparsity, "seed": seed, "disjoint": False}
        allocation = self.mask["allocation"]
        return settings if allocation == "erdos_renyi" else settings | {"allocation": allocation}

    def described(self) -> dict[str, Any]:
        """The settings as they go into a record."""
        return {
            "stream": dict(self.stream),
            "backbone": dict(self.backbone),
            "mask": dict(self.mask),
            "task": dict(self.task),
            "sparsities": list(self.sparsities),
            "basis_tasks": self.basis,
            "unseen_tasks": self.unseen,
        }


def described(benchmarks: Sequence[Benchmark]) -> tuple[dict[str, Any], str]:
    """Settings and data of several benchmarks, as they go into one record."""
    settings = {benchmark.name: benchmark.described() for benchmark in benchmarks}
    return settings, "; ".join(dict.fromkeys(benchmark.data for benchmark in benchmarks))


def rotated_mnist(scale: str) -> Benchmark:
    """LeNet-300-100 on rotations; digits of 8x8 at scale smoke."""
    return {
        "smoke": lambda: _digits("rotated_digits", 14, 10, (3, 5, 10)),
        "small": lambda: replace(
            _mnist("rotated_mnist", 20, 10, (3, 5, 10, 20)), sparsities=(0.9,), seeds=(0, 1)
        ),
        "paper": lambda: _paper(_mnist("rotated_mnist", 20, 10, (3, 5, 10, 15, 20)), "paper_lenet"),
    }[check_scale(scale)]()


def permuted_mnist(scale: str) -> Benchmark:
    """LeNet-300-100 on permutations; digits of 8x8 at scale smoke."""
    return {
        "smoke": lambda: _digits("permuted_digits", 14, 10, (3, 5, 10)),
        "small": lambda: replace(
            _mnist("permuted_mnist", 100, 10, (10, 30, 100)), sparsities=(0.9,), seeds=(0,)
        ),
        "paper": lambda: _paper(
            _mnist("permuted_mnist", 240, 10, (10, 20, 40, 60, 80, 100, 150, 240)), "paper_lenet"
        ),
    }[check_scale(scale)]()


def split_cifar100(scale: str) -> Benchmark:
    """ResNet-18 on five classes a task; a smaller network on a fifth of the images at `small`."""
    if check_scale(scale) == "smoke":
        return replace(_digits("permuted_digits", 7, 5, (3, 5)), name="split-cifar100")
    small = Benchmark(
        name="split-cifar100",
        data="the CIFAR-100 subset: 120 training and 50 test images of each of the 100 classes",
        stream={"name": "split_cifar100", "tasks": 20, "subset": True},
        backbone={
            "name": "resnet18", "num_classes": 5, "init": "signed_constant", "norm": "per_task",
            "width": 16,
        },
        mask=_mask("erdos_renyi", "magnitude", Recipe(lr=0.01, epochs=30, batch_size=64)),
        task={"recipe": Recipe(lr=0.02, epochs=20, batch_size=64).settings(), "penalty": 0.0},
        basis=15,
        unseen=5,
        counts=(5, 15),
        repeats=(5,),
        sparsities=(0.8,),
        seeds=(0,),
        gn_inputs=250,
        gn_tasks=2,
    )  # fmt: skip
    if scale == "small":
        return small
    full = {"name": "split_cifar100", "tasks": 20}
    wide = {**small.backbone, "width": 48, "init": preset("paper_resnet18").init}
    counts = (3, 5, 7, 10, 15)
    paper = replace(
        small,
        data="CIFAR-100",
        stream=full,
        backbone=wide,
        counts=counts,
        repeats=counts,
        gn_tasks=10,
    )
    return _paper(paper, "paper_resnet18")


def split_imagenet(scale: str) -> Benchmark:
    """ResNet-50 on ten classes a task; forty classes of Tiny-ImageNet at `small`."""
    if check_scale(scale) == "smoke":
        return replace(_digits("rotated_digits", 6, 3, (3, 5)), name="split-imagenet", repeats=())
    small = Benchmark(
        name="split-imagenet",
        data="40 classes of Tiny-ImageNet at 32x32, 100 training and 20 test images each",
        stream={"name": "split_imagenet", "folder": "tiny-imagenet-64", "tasks": 4, "size": 32},
        backbone={
            "name": "resnet50", "num_classes": 10, "init": "signed_constant", "norm": "per_task",
            "width": 16,
        },
        mask=_mask("erdos_renyi", "magnitude", Recipe(lr=0.01, epochs=10, batch_size=64)),
        task={"recipe": Recipe(lr=0.02, epochs=10, batch_size=64).settings(), "penalty": 0.0},
        basis=3,
        unseen=1,
        counts=(2, 3),
        repeats=(),
        sparsities=(0.8,),
        seeds=(0,),
        gn_inputs=200,
        gn_tasks=1,
    )  # fmt: skip
    if scale == "small":
        return small
    paper = replace(
        small,
        data="ImageNet, 100 tasks of ten classes",
        stream={"name": "split_imagenet", "folder": "imagenet", "tasks": 100},
        backbone={**small.backbone, "width": 64, "init": preset("paper_resnet50").init},
        basis=75,
        unseen=5,
        counts=(5, 10, 20, 35, 75),
        gn_tasks=10,
    )
    return _paper(paper, "paper_resnet50")


def _mnist(stream: str, basis: int, unseen: int, counts: tuple[int, ...]) -> Benchmark:
    best = preset("default")
    return Benchmark(
        name=stream.replace("_", "-"),
        data="MNIST, 60,000 training and 10,000 test images a task",
        stream={"name": stream, "tasks": basis + unseen},
        backbone={"name": "lenet_300_100", "num_classes": 10, **best.backbone_settings()},
        mask=_mask(best.allocation, best.score_rule, best.basis_recipe),
        task={"recipe": best.task_recipe.settings(), "penalty": best.penalty},
        basis=basis,
        unseen=unseen,
        counts=counts,
        repeats=counts,
        sparsities=PAPER_SPARSITIES,
        seeds=PAPER_SEEDS,
    )


def _digits(stream: str, basis: int, unseen: int, counts: tuple[int, ...]) -> Benchmark:
    quick = Recipe(lr=0.03, epochs=0, min_steps=60).settings()
    mnist = _mnist(stream, basis, unseen, counts)
    return replace(
        mnist,
        data="scikit-learn's 8x8 digits, 1,348 training and 449 test images a task",
        stream={"name": stream, "tasks": basis + unseen},
        backbone={**mnist.backbone, "in_features": 64},
        mask={**mnist.mask, "recipe": quick},
        task={**mnist.task, "recipe": {**quick, "lr": 0.02}},
        sparsities=(0.9,),
        seeds=(0,),
        gn_inputs=128,
    )


def _mask(allocation: str, rule: str, recipe: Recipe) -> dict[str, Any]:
    return {"allocation": allocation, "rule": rule, "recipe": recipe.settings()}


def _paper(benchmark: Benchmark, name: str) -> Benchmark:
    """The paper's grid, weights and optimiser."""
    paper = preset(name)
    return replace(
        benchmark,
        backbone={**benchmark.backbone, **paper.backbone_settings()},
        mask=_mask(paper.allocation, paper.score_rule, paper.basis_recipe),
        task={"recipe": paper.task_recipe.settings(), "penalty": paper.penalty},
        sparsities=PAPER_SPARSITIES,
        seeds=PAPER_SEEDS,
    )
