"""Round numbers for axes, the same in interactive and in static figures."""

from math import ceil, floor, log10

STEPS = (1, 2, 5, 10)


def linear_ticks(low: float, high: float, count: int = 6) -> tuple[list[float], float]:
    """Round numbers from `low` to `high`, about `count` of them, and their distance."""
    if not high > low:
        return [low], 1.0
    rough = (high - low) / count
    power = 10.0 ** floor(log10(rough))
    step = min((each * power for each in STEPS), key=lambda each: abs(log10(each / rough)))
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)], step


def logarithmic_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within the range; with 2 and 5 times them where it has fewer than three."""
    first, last = floor(log10(low)), ceil(log10(high))
    many = log10(high / low) >= 2.5
    step = max(1, round((last - first) / 8))
    found = [
        factor * 10.0**power
        for power in range(first, last + 1, step)
        for factor in ((1,) if many else (1, 2, 5))
        if low * 0.999 <= factor * 10.0**power <= high * 1.001
    ]
    return found or [low]
