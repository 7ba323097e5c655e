import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from impresslearn.networks import create_backbone, normals
from impresslearn.networks.normals import standard_normals

PLAIN_PROCESSOR = {  # without the vector instructions of this one
    "ATEN_CPU_CAPABILITY": "default",
    "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_ICL AVX512_SPR",
}
NETWORKS = """
import impresslearn as il
for init in ("kaiming_normal", "signed_constant"):
    print(il.create_backbone("lenet_300_100", 10, seed=3, init=init, gain=1.5).fingerprint())
print(il.create_backbone("resnet18", 10, seed=3, width=8).fingerprint())
"""


def test_another_processor_draws_the_same_networks():
    """A store of format 1 and `weights="seed"` opened on one family of processors only."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NETWORKS],
        env={**os.environ, **PLAIN_PROCESSOR},
        capture_output=True,
        text=True,
        check=True,
    )
    lenet = {"name": "lenet_300_100", "num_classes": 10, "seed": 3, "gain": 1.5}
    here = [
        create_backbone(**lenet),
        create_backbone(**lenet, init="signed_constant"),
        create_backbone("resnet18", 10, seed=3, width=8),
    ]
    assert done.stdout.split() == [backbone.fingerprint() for backbone in here]


@pytest.mark.parametrize(
    ("count", "seed", "place", "expected"),
    [
        (7, 0, 0, "afa755cb02f52270e923e74f92e299a5"),
        (100_003, 7, 3, "dfee776619579d2d23d568ec133ba9e2"),
        (100_003, 2**63 - 1, 0, "5578eb67aafe9ef78e1da282df9ee0e0"),
    ],
)
def test_the_numbers_are_those_of_every_other_machine(count, seed, place, expected):
    # hashlib.sha256(standard_normals(count, seed, place).astype("<f4").tobytes()).hexdigest()[:32]
    drawn = standard_normals(count, seed, place).astype("<f4").tobytes()
    assert hashlib.sha256(drawn).hexdigest()[:32] == expected


def test_the_networks_are_those_of_every_other_machine():
    # create_backbone(...).fingerprint()[:32]
    small = create_backbone("lenet_300_100", 3, seed=1, in_features=20, widths=(9, 5))
    assert small.fingerprint()[:32] == "fe42413c3feb575b0ceb87613bc4fa66"
    signed = create_backbone("resnet18", 4, seed=1, init="signed_constant", width=2)
    assert signed.fingerprint()[:32] == "40f6367b67664b5cc056ddb5fcbbde88"


def test_the_numbers_are_normal_and_independent():
    drawn = standard_normals(400_000, 11, 0).astype(np.float64)
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert stats.kstest(drawn[1::2], "norm").pvalue > 1e-3  # the second of each pair
    assert (np.abs(drawn) > 4).sum() == pytest.approx(400_000 * 2 * stats.norm.sf(4), rel=0.6)
    for power in (1, 2):
        assert abs(np.corrcoef(drawn[::2] ** power, drawn[1::2] ** power)[0, 1]) < 0.01


def test_a_sequence_depends_on_its_seed_and_place_alone(monkeypatch):
    every = standard_normals(1000, 5, 2)
    assert np.array_equal(standard_normals(10, 5, 2), every[:10])
    assert standard_normals(0, 5, 2).size == 0
    for other in (standard_normals(1000, 6, 2), standard_normals(1000, 5, 3)):
        assert not np.isin(other, every).any()
    monkeypatch.setattr(normals, "CHUNK", 7)
    assert np.array_equal(standard_normals(1000, 5, 2), every)


def test_the_logarithm_is_that_of_the_library():
    near_one = 1 - np.geomspace(1e-15, 0.5, 2000)
    values = np.concatenate([np.geomspace(2.0**-104, 1 - 1e-9, 5000), near_one])
    np.testing.assert_allclose(normals._log(values), np.log(values), rtol=1e-15)


def test_version_1_is_what_torch_draws():
    backbone = create_backbone("lenet_300_100", 3, seed=4, in_features=20, init_version=1)
    generator = torch.Generator().manual_seed(4)
    for layer in backbone.layers:
        values = torch.randn(layer.shape, generator=generator) * (2 / layer.fan_in) ** 0.5
        assert torch.equal(backbone.weights[layer.name], values)
    assert create_backbone(**backbone.spec).fingerprint() == backbone.fingerprint()
