"""Jobs that learn a task by what ours is compared with: the hybrid, an adapter, all weights.

Apart from `training`, so that a change of these methods leaves trained masks what they are.
Settings and values as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from impresslearn.experiments.jobs import Outcome, Place, job_function
from impresslearn.experiments.work.inputs import load_backbone, load_bank, load_task
from impresslearn.experiments.work.training import judged
from impresslearn.methods.adapters import Adapter
from impresslearn.methods.finetuning import FineTuning
from impresslearn.methods.hybrid import Hybrid
from impresslearn.optimisation.loop import Recipe

Settings = Mapping[str, Any]


@job_function("hybrid")
def learn_hybrid(settings: Settings, needs: Sequence[Outcome], place: Place) -> Outcome:
    """As "task" with a trained mask for the head, of the given sparsity and allocation."""
    bank = load_bank(load_backbone(settings, place), needs, settings.get("random"))
    head = {"sparsity": settings["sparsity"], "allocation": settings["allocation"]}
    return _learned(Hybrid, settings, place, bank=bank, **head)


@job_function("finetuning")
def fine_tune(settings: Settings, needs: Sequence[Outcome], place: Place) -> Outcome:
    """All weights of the network trained on one task, the upper bound: recipe."""
    return _learned(FineTuning, settings, place)


@job_function("adapter")
def learn_adapter(settings: Settings, needs: Sequence[Outcome], place: Place) -> Outcome:
    """A low-rank adapter of PEFT: kind, rank, precision, recipe."""
    given = {key: settings[key] for key in ("kind", "rank", "precision")}
    return _learned(Adapter, settings, place, **given)


def _learned(
    kind: type[Adapter | FineTuning | Hybrid], settings: Settings, place: Place, /, **more: Any
) -> Outcome:
    """The job's task, learned by a baseline of this kind and judged."""
    task, recipe = load_task(settings, place), Recipe(**settings["recipe"])
    method = kind(
        load_backbone(settings, place), recipe=recipe, seed=settings["seed"], progress=False, **more
    )
    method.learn_task(task.name, task.train)
    return judged(method, task)
