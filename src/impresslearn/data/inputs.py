"""The place of `one_tensor` before it moved to `impresslearn.data.examples`."""

from impresslearn.data.examples import one_tensor as one_tensor
