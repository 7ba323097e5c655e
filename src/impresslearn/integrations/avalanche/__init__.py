"""Avalanche: its benchmarks as streams of tasks, and a strategy for its training and evaluation.

    from avalanche.benchmarks.classic import PermutedMNIST
    from impresslearn.integrations.avalanche import ImpressStrategy, to_stream

    benchmark = PermutedMNIST(n_experiences=10, seed=0)
    result = il.evaluate(learner, to_stream(benchmark), basis=5)      # our loop, their data

    strategy = ImpressStrategy(learner=learner, basis=5)              # their loop, our learner
    for experience in benchmark.train_stream:
        strategy.train(experience)
        strategy.eval(benchmark.test_stream)

Both learn an experience as one task, named by its place: experience-0, experience-1, … Raises
MissingDependencyError where Avalanche is not installed.
"""

from impresslearn.streams.torchvision import import_extra

import_extra("avalanche", "Avalanche")  # or says how to get it

from impresslearn.integrations.avalanche.conversion import to_examples, to_stream  # noqa: E402
from impresslearn.integrations.avalanche.strategy import ImpressStrategy  # noqa: E402

__all__ = ["ImpressStrategy", "to_examples", "to_stream"]
