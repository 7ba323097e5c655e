"""Methods that train a mask for every task, either for the whole network or for its head."""

from collections.abc import Sequence
from typing import Any

from impresslearn.checks import check_known
from impresslearn.coefficients.masks import equal_alphas, mix
from impresslearn.coefficients.quantisation import Precision
from impresslearn.data import Label
from impresslearn.errors import InputError
from impresslearn.learner import ImpressLearner
from impresslearn.learner.trainer import Note
from impresslearn.masks import PopupScores
from impresslearn.masks.bank import MaskBank
from impresslearn.masks.codec import encode_mask
from impresslearn.masks.edge_popup import POPUP_RECIPE
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.methods.finetuning import DURATION, FineTuning, require_shared_head
from impresslearn.networks import Backbone
from impresslearn.store.tasks import check_new_name
from impresslearn.training.loop import Recipe, Trainable, Weights

# Edge-popup with the learning rate of basis tasks, on as many images as other methods.
SUPSUP_RECIPE = POPUP_RECIPE.changed(DURATION)
HYBRID_RECIPE = Recipe(optimizer="adam", lr=0.02, schedule="cosine", **DURATION)
# The settings of `ImpressLearner` that concern trained masks.
MASK_SETTINGS = (
    *("sparsity", "allocation", "basis_recipe", "score_rule"),
    *("seed", "preprocessing", "progress", "cache_bytes"),
)


class SupSup(ImpressLearner):
    """Trains a mask for every task; nothing is shared and nothing is forgotten.

    A task of SupSup is a basis task of `ImpressLearner`. Methods not listed here are as there.

    - backbone: the frozen network
    - precision: the precision of heads and norm statistics
    - settings: sparsity, allocation, basis_recipe, score_rule, seed, preprocessing, progress and
      cache_bytes, as in `ImpressLearner`. The default basis_recipe trains on the same number of
      images as the library's other methods

    Source: Wortsman et al., "Supermasks in Superposition" (2020). It infers tasks, which is the
    setting GN, by `infer_task(inputs, method="one_shot", objective="entropy")`.
    """

    def __init__(
        self, backbone: Backbone, *, precision: Precision = "float32", **settings: Any
    ) -> None:
        for name in settings:
            check_known("SupSup has no setting", name, (*MASK_SETTINGS, "precision"))
        settings.setdefault("basis_recipe", SUPSUP_RECIPE)
        super().__init__(backbone, precision=precision, **settings)
        self.recipe = self.settings.basis_recipe

    def learn_task(
        self, name: str, data: Any, *, seed: int | None = None, note: Note | None = None
    ) -> ImpressLearner:
        """Trains the task's mask with edge-popup, as `ImpressLearner.learn_basis` does."""
        return self.learn_basis(name, data, seed=seed, note=note)

    def learn_tasks(self, tasks: Any, **settings: Any) -> ImpressLearner:
        """Raises InputError, because it would mix masks and train none."""
        raise InputError("SupSup trains one mask at a time; call learn_task for each task")


class Hybrid(FineTuning):
    """Learns coefficients for the hidden layers and a mask for the head, task by task.

    All layers except the last combine the bank's masks. Edge-popup trains the mask of the last
    layer at the same time.

    - backbone: the frozen network, with at least two maskable layers and one head for all tasks
    - bank: the masks to combine; by default an empty bank, which `learn_basis` fills
    - recipe: the recipe for training coefficients and heads
    - settings: as in `SupSup`, without precision; sparsity and allocation also apply to heads

    Raises InputError for another backbone. Source: the paper's appendix "Hybrid ImpressLearn".
    """

    def __init__(
        self,
        backbone: Backbone,
        bank: MaskBank | None = None,
        *,
        recipe: Recipe = HYBRID_RECIPE,
        **settings: Any,
    ) -> None:
        require_shared_head("Hybrid", backbone)
        if len(backbone.layers) < 2:
            raise InputError("a hybrid needs a body and a head: at least two maskable layers")
        for name in settings:
            check_known("Hybrid has no setting", name, MASK_SETTINGS)
        self._learner = ImpressLearner(backbone, bank=bank, **settings)
        self.settings, self.bank_ = self._learner.settings, self._learner.bank_
        super().__init__(
            backbone,
            recipe=recipe,
            seed=self.settings.seed,
            preprocessing=self.settings.preprocessing,
            progress=self._learner.progress,
            make_trainable=self._trainable,
        )

    def learn_basis(self, name: str, data: Any) -> "Hybrid":
        """Trains a mask on a task and adds it to the bank; the task predicts with this mask."""
        check_new_name(name, self.tasks_)
        self._learner.progress = self.progress
        self._learner.learn_basis(name, data)
        self._infos[name] = self._learner.tasks_[name]
        self._views[name] = self._learner.task_model(name).view
        return self

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy of the equal mixture of all masks on an unlearned task."""
        return self._learner.zero_shot_score(data, classes)

    def _trainable(self, examples: int) -> Trainable:
        backbone, settings, head = self.backbone, self.settings, self.backbone.layers[-1]
        *alphas, last = equal_alphas(self.bank_)
        for alpha in alphas:
            alpha.requires_grad_(True)
        *_, ones = ones_per_layer(backbone.layers, settings.sparsity, settings.allocation)
        scores = PopupScores.create([head], [ones], self.seed, "score", backbone.device)

        def weights() -> tuple[Weights, float]:
            # The mixture also has the last layer; replace it by the weights under the head's mask.
            mixed = mix(self.bank_, backbone.weights, [*alphas, last])
            return mixed | scores.weights(backbone.weights), 0.0

        def result() -> tuple[Weights, int]:
            # Bytes: the coded mask of the head, and the coefficients in float32.
            mask = scores.masks()[head.name].reshape(head.units, -1)
            size = sum(alpha.nbytes for alpha in alphas) + len(encode_mask([mask.cpu().numpy()]))
            return weights()[0], size

        return Trainable([*alphas, *scores.tensors], weights, result)
