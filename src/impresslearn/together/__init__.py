"""Many independent optimisations side by side: K tasks, or K masks, in one loop.

Every problem keeps its own numbers, its own order of the data (its own seed) and its own share of
one summed loss, so the results are those of K separate runs up to rounding. One batched forward
pass serves them all: faster where K small networks leave a device idle (a GPU), slower on a CPU,
where dense batched products lose to one network after another.

Before that, `trial` finds whether a batched pass is the same for a network, and how many problems
the memory holds. Problems of a run that fails are taken one by one, which says what is wrong with
which of them and keeps those before it.
"""

from impresslearn.together.learning import (
    alike,
    learn_coefficients_together,
    train_masks_together,
    wanted,
)

__all__ = ["alike", "learn_coefficients_together", "train_masks_together", "wanted"]
