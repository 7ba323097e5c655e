"""First-session adaptation: trains the whole network once, before the first task."""

import copy
from typing import Any

import torch

from impresslearn.checks import check_seed, clear_calls
from impresslearn.data import to_batches
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone, training_examples
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.training.loop import Recipe, TaskTraining, Trainable, with_head
from impresslearn.training.progress import ProgressChoice, progress_for

HEAD_RATE = 10.0  # the head starts from zeros, so it learns faster than pretrained weights
FIRST_SESSION_RECIPE = Recipe(
    optimizer="adamw",
    lr=0.0005,
    weight_decay=0.0001,
    epochs=5,
    batch_size=64,
    warmup_epochs=0.5,
    label_smoothing=0.1,
)


@clear_calls
@torch.inference_mode(False)
def adapt_to(
    backbone: Backbone,
    data: Any,
    *,
    recipe: Recipe = FIRST_SESSION_RECIPE,
    preprocessing: Preprocessing | None = None,
    seed: int = 0,
    progress: ProgressChoice = "auto",
) -> Backbone:
    """Trains a copy of a network once on data like the later tasks, and freezes it again.

    Pass the returned network to a new learner. Its readouts are more accurate at equal bytes. Five
    epochs on 60 classes of CIFAR-100 raised linear probes of other classes by 4 to 6 points.

    - backbone: a network from `adapt`, which does not change.
    - data: labelled examples of many classes, in one data set, as in `learn_task`.
    - recipe: by default AdamW at 0.0005 for 5 epochs; use 0.002 and 20 epochs for a small network.
    - preprocessing, progress: as in `ImpressLearner`.
    - seed: seed of the order of batches and the augmentation.

    Embeddings and recurrent layers stay frozen. Raises InputError for invalid data or if all would,
    and TrainingError if it diverges. Source: Panos et al. 2023, as in RanPAC (McDonnell 2023).
    """
    recipe = FIRST_SESSION_RECIPE.changed(recipe)
    examples, classes = training_examples(check_backbone(backbone), data, preprocessing)
    source, phase = to_batches(examples, classes, backbone.device), TrainingPhase.begin(backbone)
    bar = progress_for(progress).titled("first session")
    training = TaskTraining(backbone, source, len(classes), recipe, phase, check_seed(seed), bar)
    trained = backbone.weights | backbone.small
    if not trained:
        raise InputError(f"{backbone.name} has no layer to adapt before its head; skip adapt_to")
    copies = {name: values.clone().requires_grad_(True) for name, values in trained.items()}
    body = Trainable(list(copies.values()), lambda: (copies, 0.0), lambda: copies)
    training.fit(with_head(body, backbone, len(classes), HEAD_RATE))
    adapted = copy.deepcopy(backbone)
    tensors = dict(adapted.module.named_parameters()) | dict(adapted.module.named_buffers())
    with torch.no_grad():
        for name, values in (backbone.parameters_of(copies) | (phase.statistics or {})).items():
            tensors[name].copy_(values)
    vars(adapted)["pretrained"] = True
    adapted._link()  # updates the attributes that depend on the tensors' values
    return adapted
