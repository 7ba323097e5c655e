"""Learners on a model hub: pushed as one store and a model card, and loaded from there.

The client, huggingface_hub, is imported when a verb is called; which hub it talks to is its own
setting (HF_ENDPOINT).
"""

from impresslearn.hub.sharing import from_hub, push_to_hub

__all__ = ["from_hub", "push_to_hub"]
