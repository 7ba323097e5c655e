"""What choosing among tasks takes is known before it is taken."""

from __future__ import annotations

import pytest

from impresslearn.inference.superposition import Superposition
from impresslearn.state.known_tasks import known_tasks, superposition_bytes
from toys import blobs, quick_learner


@pytest.mark.parametrize(
    "settings",
    [{}, {"granularity": "unit"}, {"output_scale": True}, {"input_scale": True}],
    ids=str,
)
def test_the_bytes_of_a_superposition_are_those_it_holds_and_twice_as_many(settings):
    learner = quick_learner(**settings)
    learner.learn_basis("a", blobs(0)).learn_basis("b", blobs(1))
    learner.learn_task("c", blobs(2)).learn_task("d", blobs(3))
    state = learner._state
    for among in ("all", "basis", "learned", ["a", "d"]):
        chosen = [each.coefficients for each in known_tasks(state, among)]
        held = Superposition(state.backbone, state.bank, chosen)
        tensors = [*held._alphas, *(w for dense in held._dense.values() for w in dense.values())]
        most = 3 * sum(tensor.nbytes for tensor in tensors)
        # Dense candidates are counted as coefficients too.
        assert most <= superposition_bytes(state, among) <= 1.2 * most
