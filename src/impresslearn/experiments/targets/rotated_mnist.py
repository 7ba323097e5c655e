"""Rotated MNIST: X, heterogeneous, homogeneous and GN over N, with SupSup (the paper's figure)."""

from impresslearn.experiments.targets.benchmarks import rotated_mnist
from impresslearn.experiments.targets.comparison import comparison
from impresslearn.experiments.targets.plan import Target

TARGET = Target(
    name="rotated-mnist",
    title="Rotated MNIST over the number of masks",
    claim="A few heterogeneous masks (N = 5 in Table 1) bring unseen rotations close to a "
    "dedicated mask; a single foreign mask stays at 10 ± 3%; homogeneous masks need larger N.",
    expects="heterogeneous accuracy grows with N and stays below SupSup where basis angles leave "
    "gaps; X far above chance where a near angle has a mask",
    cost="an estimated 20 minutes",
    plan=lambda scale: comparison(rotated_mnist(scale)),
)
