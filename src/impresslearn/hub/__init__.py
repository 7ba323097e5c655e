"""Learners on a model hub. The client, huggingface_hub, is imported when a verb is called."""

from impresslearn.hub.sharing import from_hub, push_to_hub

__all__ = ["from_hub", "push_to_hub"]
