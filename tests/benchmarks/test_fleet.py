"""The simulation of a night on machines that are taken away."""

from benchmarks.fleet import CHUNK, CORES, START_SECONDS, TASK_SECONDS, night


def test_a_night_takes_what_the_measured_costs_say():
    hours, paid = night(CHUNK * CORES * 100, 1, 1e9)
    assert 3600 * hours == START_SECONDS + 100 * CHUNK * TASK_SECONDS
    assert paid == hours
    hours, paid = night(10_000_000, 4, 1e9)
    assert abs(3600 * hours - START_SECONDS - 10_000_000 * TASK_SECONDS / 32) < 2
    assert paid == 4 * hours


def test_interruptions_cost_time_and_every_night_ends():
    smooth, _ = night(2_000_000, 4, 1e9)
    rough = [night(2_000_000, 4, 0.2, seed)[0] for seed in range(10)]
    assert all(hours > smooth for hours in rough)
    assert max(rough) < 5 * smooth
