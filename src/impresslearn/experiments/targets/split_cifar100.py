"""Split-CIFAR-100: X, heterogeneous, homogeneous and GN over N, with SupSup (the paper's plot)."""

from impresslearn.experiments.targets.benchmarks import split_cifar100
from impresslearn.experiments.targets.comparison import comparison
from impresslearn.experiments.targets.plan import Target

TARGET = Target(
    name="split-cifar100",
    title="Split-CIFAR-100 over the number of masks",
    claim="ImpressLearn is slightly inferior to SupSup when there are few tasks to make masks of; "
    "a foreign mask alone stays at 20 ± 2%.",
    expects="a coefficient a layer stays 8 points below SupSup at N = 15; α-optimisation misses "
    "the task, halving finds it where the mask is good",
    cost="about 35 minutes",
    plan=lambda scale: comparison(split_cifar100(scale)),
)
