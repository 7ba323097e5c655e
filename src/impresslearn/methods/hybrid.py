"""The hybrid of the paper's appendix: ImpressLearn's body with SupSup's head.

All layers but the last combine the bank's masks; the last gets a binary mask of its own, trained
with edge-popup at the same time.
"""

from __future__ import annotations

from impresslearn.coefficients.mixing import mixed_weights, uniform_coefficients
from impresslearn.errors import InputError
from impresslearn.masks import PopupScores
from impresslearn.masks.bank import MaskBank
from impresslearn.masks.codec import encode_mask
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.methods.dedicated_weights import OwnWeights, Trainable, Weights
from impresslearn.networks import Backbone
from impresslearn.optimisation.loop import Recipe
from impresslearn.state.tasks import tensor_bytes

HYBRID_RECIPE = Recipe(optimizer="adam", lr=0.02, schedule="cosine", epochs=3, min_steps=300)


class Hybrid(OwnWeights):
    """Learns coefficients for the hidden layers and a mask for the head, task by task.

    backbone, bank: the frozen network and its masks, as the bank is when a task is learned;
    sparsity and allocation: of the head's mask, as a trained mask of the whole network would have
    them.
    """

    title = "hybrid"

    def __init__(
        self,
        backbone: Backbone,
        bank: MaskBank,
        *,
        sparsity: float = 0.9,
        allocation: str = "erdos_renyi",
        recipe: Recipe = HYBRID_RECIPE,
        seed: int = 0,
        progress: bool | str = "auto",
    ) -> None:
        if len(backbone.layers) < 2:
            raise InputError("a hybrid needs a body and a head: at least two maskable layers")
        super().__init__(backbone, recipe, seed, progress)
        self.bank, self.sparsity, self.allocation = bank, sparsity, allocation
        self._head_ones = ones_per_layer(backbone.layers, sparsity, allocation)[-1]

    def _begin(self) -> Trainable:
        backbone, head = self.backbone, self.backbone.layers[-1:]
        body = uniform_coefficients(backbone.layers, len(self.bank), device=backbone.device)
        alphas = [alpha.requires_grad_(True) for alpha in body.alpha[:-1]]
        scores = PopupScores.create(head, [self._head_ones], self.seed, device=backbone.device)

        def weights() -> Weights:
            mixed = mixed_weights(self.bank, backbone.weights, body)
            return mixed | scores.weights(backbone.weights)

        def kept() -> tuple[Weights, int]:
            """Body coefficients in float32, and the mask of the head as a store codes it."""
            masks = scores.masks()
            rows = [masks[layer.name].reshape(layer.units, -1).cpu().numpy() for layer in head]
            return weights(), tensor_bytes(alphas) + len(encode_mask(rows))

        return Trainable([*alphas, *scores.tensors], weights, kept)
