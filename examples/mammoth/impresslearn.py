"""ImpressLearn as a model of Mammoth: copy this file into Mammoth's folder `models/`.

Mammoth's network stays frozen as it was initialised (or loaded). Each of its tasks becomes one of
the learner's, with a head of its own, and is learned at once when Mammoth's training of the task
ends, for `--task_epochs` epochs with Mammoth's `--lr` and `--batch_size`; Mammoth's own epochs are
passed over, of which one is enough. README.md beside this file has the commands and says what the
accuracies mean.
"""

from dataclasses import replace

import torch
from models.utils.continual_model import ContinualModel
from torch import nn
from torch.utils.data import Dataset

import impresslearn as il

FAR = 1e4
"""Below any log-probability: what the columns of tasks that were not chosen are lowered by."""


class Pairs(Dataset):
    """Mammoth's training items without what follows the label."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, place):
        item = self.items[place]
        return item[0], int(item[1])


class WithHead(nn.Module):
    """Mammoth's network up to its features, and a last layer that each task replaces."""

    def __init__(self, net, inputs, classes):
        super().__init__()
        self.net = net
        with torch.no_grad():
            width = net.eval()(inputs, returnt="features").flatten(1).shape[1]
        self.head = nn.Linear(width, classes)

    def forward(self, inputs):
        return self.head(self.net(inputs, returnt="features").flatten(1))


class ImpressLearn(ContinualModel):
    """A frozen network, and a few learned numbers a task.

    With `--infer_task 0`, the default, Mammoth tells the task of each batch of evaluation
    (Task-IL). With 1 the learner infers it from the batch (Class-IL and Domain-IL).
    """

    NAME = "impresslearn"
    COMPATIBILITY = ("class-il", "domain-il", "task-il")

    @staticmethod
    def get_parser(parser):
        parser.set_defaults(lr=0.02, batch_size=128, n_epochs=1)
        parser.add_argument(
            "--preset", default="pretrained", help="The learner's preset: pretrained or per_weight."
        )
        parser.add_argument(
            "--task_epochs", type=float, default=3, help="Epochs that the learner takes for a task."
        )
        parser.add_argument(
            "--infer_task", type=int, choices=(0, 1), default=0,
            help="Whether the task of a batch is inferred from its inputs.",
        )  # fmt: skip
        return parser

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset=dataset)
        if not args.infer_task:
            if self.dataset.SETTING != "class-il":
                raise il.InputError(
                    f"{self.dataset.NAME} has no Task-IL accuracy in Mammoth; use --infer_task 1"
                )
            self.COMPATIBILITY = ("task-il",)
        self.learner = None

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        """Passes over a batch: the task is learned at its end."""
        return 0.0

    def end_task(self, dataset):
        """Learns the task of the training loader."""
        data = Pairs(dataset.train_loader.dataset)
        if self.learner is None:
            self.learner = self.new_learner(data[0][0])
        self.learner.learn_task(self.name_of(len(self.learner.tasks_)), data)
        kept = self.learner.tasks_
        print(f"\n{len(kept)} tasks take {sum(each.bytes for each in kept.values())} bytes")

    def new_learner(self, example):
        """A learner over Mammoth's network; example: one of its inputs."""
        module = WithHead(self.net.cpu(), example[None], self.num_classes)
        unused = [name for name, _ in self.net.named_modules() if name == "classifier"]
        network = il.adapt(
            module, input_shape=tuple(example.shape), skip=[f"net.{name}.*" for name in unused]
        )
        recipe = replace(
            il.preset(self.args.preset).task_recipe,
            lr=self.args.lr,
            epochs=self.args.task_epochs,
            batch_size=self.args.batch_size,
        )
        settings = {
            "seed": self.args.seed or 0,
            "progress": not self.args.non_verbose,
            "task_recipe": recipe,
        }
        return il.ImpressLearner.from_preset(network.to(self.device), self.args.preset, **settings)

    def forward(self, x, task_label=None):
        """(n, N_CLASSES) log-probabilities; those of tasks that were not chosen are lowered."""
        outputs = torch.full((len(x), self.num_classes), -2 * FAR, device=x.device)
        if self.learner is None:
            return outputs
        if task_label is None:
            chosen = self.learner.infer_task(x).best
        else:
            chosen = self.name_of(task_label)
        # The other tasks' columns serve the Task-IL accuracy that Mammoth computes beside.
        others = self.learner.tasks_ if self.dataset.SETTING == "class-il" else ()
        for name in [*(name for name in others if name != chosen), chosen]:
            if name in self.learner.tasks_:
                classes = list(self.learner.tasks_[name].classes)
                found = self.learner.logits(x, name).log_softmax(1).to(outputs)
                outputs[:, classes] = found if name == chosen else found - FAR
        return outputs

    @staticmethod
    def name_of(place):
        return f"task-{place}"
