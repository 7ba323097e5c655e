import pytest

from impresslearn.report.wording import (
    duration,
    percent,
    points,
    power_of_ten,
    shortened,
    size,
    times,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (66.4, "66.4 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (33_275, "33.3 kB"),
        (240_000, "240 kB"),
        (4_690_000, "4.7 MB"),
        (5e15, "5000000 GB"),
    ],
)
def test_size(count, text):
    assert size(count) == text


def test_powers():
    assert [power_of_ten(power) for power in (0, 2, 3, 5, 6, 10)] == [
        "1 B",
        "100 B",
        "1 kB",
        "100 kB",
        "1 MB",
        "10 GB",
    ]


def test_other_numbers():
    assert (percent(0.93124), percent(None)) == ("93.1%", "–")
    assert (points(0.0), points(0.0123), points(-0.05)) == ("0", "1.2 points", "-5 points")
    assert (duration(1.24), duration(41.3), duration(135)) == ("1.2 s", "41 s", "2 min 15 s")
    assert (times(4200, 48), times(3, 2), times(1, 0)) == ("88 ×", "1.5 ×", None)
    assert shortened("a" * 20, limit=5) == "aaaa…"
