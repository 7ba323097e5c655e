"""Where compiled loops cannot be had, others compute the same; a forked child finds locks free."""

import multiprocessing
import os

import pytest
import torch

from impresslearn.kernels import implementation, mix, pack
from toys import in_a_new_process, threads

pytest.importorskip("numba", reason="the compiled kernels need Numba")

COMPUTE = """
import warnings
import torch
from impresslearn.kernels import implementation, mix, pack
bits = pack(torch.arange(40 * 4 * 21).reshape(40, 4, 21) % 3 == 0)
alpha = torch.linspace(0, 1, 40, requires_grad=True)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    mixed = mix(bits, alpha, torch.linspace(0, 1, 84).reshape(4, 21))
    mixed.sum().backward()
print(implementation(torch.device("cpu")).__name__.split(".")[-1])
print(sum("compiled loops cannot be used here" in str(each.message) for each in told))
print(float(mixed.double().sum()), float(alpha.grad.sum()))
"""
NO_NUMBA = "import sys\nsys.modules['numba'] = sys.modules['llvmlite'] = None\n"
NO_CACHE = """
from numba.core import caching
caching.CacheImpl._locator_classes = []
"""
UNCOMPILED = "import llvmlite.ir\nllvmlite.ir.IRBuilder.shuffle_vector = None\n"


@pytest.fixture(scope="module")
def computed():
    """The implementation's name, warnings and numbers of a process where nothing is missing."""
    return in_a_new_process("-c", COMPUTE).split()


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        pytest.param(NO_NUMBA, ["reference", "0"], id="no Numba", marks=pytest.mark.nightly),
        pytest.param(UNCOMPILED, ["reference", "1"], id="not compiled", marks=pytest.mark.slow),
        pytest.param(NO_CACHE, ["cpu", "0"], id="read-only folder", marks=pytest.mark.nightly),
    ],
)
def test_slower_loops_compute_the_same(computed, tmp_path, broken, expected):
    environment = {"NUMBA_CACHE_DIR": str(tmp_path)} if broken == UNCOMPILED else {}
    name, told, *numbers = in_a_new_process("-c", broken + COMPUTE, **environment).split()
    assert [name, told] == expected
    assert computed[:2] == ["cpu", "0"]
    assert list(map(float, numbers)) == pytest.approx(list(map(float, computed[2:])), rel=1e-5)


pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_does_not_wait_for_threads_that_only_the_parent_has():
    bits = pack(torch.ones(64, 16, 784, dtype=torch.bool))  # enough for more threads than one
    alpha, weight = torch.ones(64), torch.ones(16, 784)

    def work():
        assert torch.ones(1000, 1000).sum() == 1_000_000
        assert (mix(bits, alpha, weight) == 64).all()
        assert (
            implementation(bits.device).mask_sums(bits, weight, weight, False) == 16 * 784
        ).all()

    with threads(2):
        work()
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join(20)
        process.kill()
        assert process.exitcode == 0
