"""`ImpressLearner`: the verbs, and what they do."""

from impresslearn.learner.learner import ImpressLearner

__all__ = ["ImpressLearner"]
