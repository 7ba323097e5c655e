"""The optional loops over tables: every test of the compiled loops, and when they are chosen."""

import pytest
import test_loop_memory as memory
import test_mix_kernels as mixing
import torch

from impresslearn.kernels import pack
from impresslearn.kernels.compiling import UnsupportedProcessorError

cpu = mixing.cpu
_poisoned_memory, threads = mixing._poisoned_memory, mixing.threads


@pytest.fixture(autouse=True)
def loops(monkeypatch):
    """Tables from one mask on."""
    try:
        from impresslearn.kernels import tables
    except UnsupportedProcessorError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(cpu, "MANY_MASKS", 1)
    monkeypatch.setattr(cpu, "LONG_UNIT", 1)
    return tables


test_sizes = mixing.test_sizes
test_random_shapes = mixing.test_random_shapes
test_views_of_a_bank = mixing.test_views_of_a_bank
test_layouts = mixing.test_weights_and_gradients_in_any_layout
test_left_out = mixing.test_what_a_mask_leaves_out_does_not_reach_its_sum
test_threads = mixing.test_results_do_not_depend_on_the_number_of_threads
test_scratch = mixing.test_every_thread_has_scratch_of_its_own
test_calls_at_once = mixing.test_calls_from_several_threads_at_once
test_writes = memory.test_nothing_outside_the_rows_is_written
test_reads = memory.test_nothing_past_the_end_is_touched


def test_tables_are_for_many_masks_and_tiles_serve_without_them(monkeypatch):
    monkeypatch.undo()  # the true limits
    calls = []
    monkeypatch.setattr(cpu, "usable", calls.append)
    bits, weight = pack(torch.ones(100, 2, 300, dtype=torch.bool)), torch.ones(2, 300)
    assert cpu.mix(bits[:4], torch.ones(4), weight)[0, 0] == 4
    assert calls == []
    assert cpu.mix(bits, torch.ones(100), weight)[0, 0] == 100
    assert cpu.mask_sums(bits, weight, weight, False)[0] == 600
    assert calls == ["tables", "tables"]
