"""The GPU kernels: in Triton's interpreter, which runs anywhere, and on a CUDA device.

The interpreter must be chosen before Triton is first imported, so that `test_mix_kernels` runs in a
process of its own.
"""

from pathlib import Path

import pytest
import torch
from test_mix_kernels import DTYPES, PER_UNIT, check_sums, draw, each_view, gradients, mask_sums

from impresslearn.kernels import mix, reference
from toys import in_a_new_process


@pytest.mark.nightly
def test_in_the_interpreter():
    pytest.importorskip("triton")
    tests = str(Path(__file__).with_name("test_mix_kernels.py"))
    arguments = ("-m", "pytest", "-p", "no:cacheprovider", tests)
    assert " passed" in in_a_new_process(*arguments, TRITON_INTERPRET="1")


@pytest.mark.parametrize("weight", ["fp32", "fp16", "bf16"])
def test_compiles_for_a_gpu_that_is_not_there(weight, tmp_path, monkeypatch):
    """The interpreter knows no types and no layouts; the compiler needs no device."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from impresslearn.kernels import cuda

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    pointers = {"bits": "*i16", "alpha": "*fp32"}
    pointers |= dict.fromkeys(("weight", "left", "right"), f"*{weight}")
    for kernel, out, constants in (
        (cuda._mix, f"*{weight}", {}),
        (cuda._sums, "*fp32", {"PER_UNIT": True}),
        (cuda._sums, "*fp32", {"PER_UNIT": False}),
    ):
        constants |= {"ROWS": 4, "WORDS": 32}
        types = (
            pointers | {"out": out, "mask_stride": "i64"} | dict.fromkeys(constants, "constexpr")
        )
        signature = {name: types.get(name, "i32") for name in kernel.arg_names}
        source = ASTSource(kernel, signature, constants)
        assert triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["cubin"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnAGpu:
    @PER_UNIT
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize(
        ("count", "units", "fan_in"),
        [(1, 1, 1), (5, 7, 15), (5, 7, 17), (100, 10, 100), (100, 300, 784), (3, 64, 4608)],
    )
    def test_values_and_gradients(self, count, units, fan_in, per_unit, dtype):
        drawn = draw(count, units, fan_in, per_unit, dtype=dtype)
        moved = [tensor.cuda() for tensor in drawn]
        found = gradients(*moved)
        part = 1e-4 if dtype == torch.float32 else 0.02
        for ours, theirs in zip(found, gradients(*drawn), strict=True):
            largest = float(theirs.abs().max())
            torch.testing.assert_close(ours.cpu(), theirs, rtol=part, atol=part * largest)
        bits, alpha, left, right = moved
        assert torch.equal(found[0], reference.mix(bits, alpha, left))
        check_sums(found[1], bits, left, right, per_unit)
        for again, once in zip(gradients(*moved), found, strict=True):
            assert torch.equal(again, once)

    @each_view
    def test_views_of_a_bank(self, view):
        bits, alpha, left, right = (each.cuda() for each in draw(10, 6, 37, per_unit=True))
        bits = view(bits)
        alpha = alpha[: len(bits)]
        assert torch.equal(mix(bits, alpha, left), reference.mix(bits, alpha, left))
        check_sums(mask_sums(bits, left, right), bits, left, right, False)
