"""A learner, or another method, in Avalanche's training and evaluation loops."""

from __future__ import annotations

from typing import Any

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from impresslearn.checks import check_flag, check_integer
from impresslearn.errors import InputError
from impresslearn.integrations.avalanche.conversion import task_name, to_examples


class ImpressStrategy(SupervisedTemplate):
    """Learns each experience as a task; evaluates on batches as Avalanche's metrics take them.

    learner: an `ImpressLearner`, or any method with `learn_task`, `predict` and `tasks_`. basis:
    how many of the first experiences are learned by `learn_basis`, as masks. infer: whether the
    task of each batch of evaluation is inferred from its inputs, as for benchmarks without task
    labels, instead of taken from the experience. The other settings are those of
    `SupervisedTemplate`: plugins, evaluator, eval_mb_size, eval_every.

    A batch's output has a column for each class up to the largest; classes that are not the task's
    have the least number of their type there. Experiences that are not learned as yet get zeros:
    guessing. A method without `logits` gives zeros and ones. Training is the learner's own: there
    are no batches, epochs or losses of it to follow, so plugins and metrics of training see the
    experience alone. Raises InputError for a learner without the verbs, and where experiences for
    evaluation cannot be told to be of a task.
    """

    def __init__(
        self,
        *,
        learner: Any,
        basis: int = 0,
        infer: bool = False,
        eval_mb_size: int = 256,
        **settings: Any,
    ) -> None:
        infer = check_flag("infer", infer)
        verbs = ["learn_task", "predict", "tasks_"]
        verbs += ["learn_basis"] if basis else []
        verbs += ["infer_task"] if infer else []
        if missing := [verb for verb in verbs if not hasattr(learner, verb)]:
            raise InputError(f"a learner needs {missing[0]}, {type(learner).__name__} has none")
        for name in ("model", "optimizer", "train_epochs", "train_mb_size"):
            if name in settings:
                raise InputError(f"{name} is the learner's; set it where that is made")
        self.learner, self.basis = learner, check_integer("basis", basis, 0)
        self.infer = infer
        backbone = getattr(learner, "backbone", None)
        settings.setdefault("device", getattr(backbone, "device", "cpu"))
        nothing = torch.optim.SGD([torch.zeros(1)], lr=0.0)  # the template asks for one
        super().__init__(
            model=nn.Identity(), optimizer=nothing, eval_mb_size=eval_mb_size, **settings
        )

    def _train_exp(self, experience: Any, eval_streams: Any = None, **kwargs: Any) -> None:
        verb = "learn_basis" if experience.current_experience < self.basis else "learn_task"
        # Which plugins may have added to.
        getattr(self.learner, verb)(task_name(experience), to_examples(self.adapted_dataset))

    def forward(self) -> Tensor:
        """The output for the batch of evaluation, (n, classes) float32."""
        task = self._task()
        known = self.learner.tasks_
        labels = [int(label) for label in known[task].classes] if task is not None else []
        width = 1 + max(*labels, int(self.mb_y.max()), 0)
        if task is None:
            return torch.zeros((len(self.mb_x), width), device=self.device)
        if hasattr(self.learner, "logits"):
            found = self.learner.logits(self.mb_x, task).float().to(self.device)
            least = torch.finfo(found.dtype).min
            output = torch.full((len(found), width), least, device=self.device)
            output[:, labels] = found
            return output
        chosen = torch.as_tensor(self.learner.predict(self.mb_x, task)).long()
        return nn.functional.one_hot(chosen, width).float().to(self.device)

    def _task(self) -> str | None:
        """The task that the batch is computed with; None where there is none as yet."""
        learned = self.learner.tasks_
        if self.infer:
            return self.learner.infer_task(self.mb_x).best if learned else None
        experience: Any = self.experience
        stream = experience.origin_stream
        benchmark = getattr(stream, "benchmark", None)
        trained = getattr(benchmark, "train_stream", stream)
        if len(stream) != len(trained):
            raise InputError(
                f"which task is {stream.name}'s experience {experience.current_experience} of? "
                f"It has {len(stream)}, the train stream {len(trained)}; set infer=True"
            )
        name = task_name(experience)
        return name if name in learned else None

    def model_adaptation(self, model: Any = None) -> Any:
        """The placeholder that stands for the model: nothing is adapted."""
        return self.model

    def make_optimizer(self, **kwargs: Any) -> None:
        """Nothing: the learner has its own."""

    def check_model_and_optimizer(self, **kwargs: Any) -> None:
        """Nothing: the learner has its own."""
