"""A chart of the masks that a learner's tasks use, for notebooks and pictures."""

from typing import Any

import torch

from impresslearn.checks import check_kind
from impresslearn.errors import InputError
from impresslearn.learner.learner import ImpressLearner


def mask_usage(learner: ImpressLearner) -> Any:
    """An Altair chart of the masks that each task uses, by their shares of absolute coefficients.

    All layers count equally. The method `.save("usage.svg")` of the chart writes a picture. Raises
    InputError if no task combines masks.
    """
    from impresslearn.plotting import heatmap, styled  # Altair takes a second to import

    check_kind("learner", learner, ImpressLearner)
    rows = []
    for name, numbers in learner.coefficients_.items():
        alphas = numbers.alpha
        if not alphas:
            continue  # the task has no coefficients of masks
        by_layer = [alpha.abs().reshape(len(alpha), -1).mean(dim=1) for alpha in alphas]
        usage = torch.stack(by_layer).sum(dim=0)
        shares = usage / usage.sum().clamp_min(1e-12)
        for mask, share in zip(learner.bank_.names, shares.tolist(), strict=False):
            rows.append({"mask": mask, "task": name, "share": share})
    if not rows:
        raise InputError("none of the tasks combines masks; learn one over a bank of masks first")
    return styled(heatmap(rows, "mask", "task", "share"), "Masks that tasks use")
