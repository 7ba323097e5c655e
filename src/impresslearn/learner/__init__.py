"""`ImpressLearner`, the functions that create, load and advise on learners, and presets."""

from impresslearn.learner import charts as charts
from impresslearn.learner.advice import Advice as Advice
from impresslearn.learner.advice import advise as advise
from impresslearn.learner.learner import ImpressLearner as ImpressLearner
from impresslearn.learner.loading import load as load
from impresslearn.learner.loading import open_store as open_store
from impresslearn.learner.presets import list_presets as list_presets
from impresslearn.learner.presets import preset as preset
