"""Permuted MNIST: X, heterogeneous, homogeneous and GN over N, with SupSup (the paper's figure)."""

from impresslearn.experiments.targets.benchmarks import permuted_mnist
from impresslearn.experiments.targets.comparison import comparison
from impresslearn.experiments.targets.plan import Target

TARGET = Target(
    name="permuted-mnist",
    title="Permuted MNIST over the number of masks",
    claim="Accuracy grows with N and comes close to SupSup at N = 100 (Table 1); homogeneous masks "
    "approach heterogeneous ones when there are many; a foreign mask alone stays at 10 ± 3%.",
    expects="83% at N = 100 with a coefficient a layer, 15 points below SupSup; homogeneous "
    "and heterogeneous alike",
    cost="about 12 minutes",
    plan=lambda scale: comparison(permuted_mnist(scale)),
)
