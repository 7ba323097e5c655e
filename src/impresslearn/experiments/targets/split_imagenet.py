"""Split-ImageNet: X, heterogeneous and GN over N, with SupSup (the paper's figure)."""

from impresslearn.experiments.targets.benchmarks import split_imagenet
from impresslearn.experiments.targets.comparison import comparison
from impresslearn.experiments.targets.plan import Target

TARGET = Target(
    name="split-imagenet",
    title="Split-ImageNet over the number of masks",
    claim="Accuracy on unseen tasks grows with N up to 35 and stays below SupSup; α-optimisation "
    "beats SupSup's one-shot inference when the task is not given.",
    expects="at scale small a check that everything runs on image folders, not a test of the "
    "claim: four tasks leave three masks",
    cost="about 2 minutes",
    plan=lambda scale: comparison(split_imagenet(scale)),
)
