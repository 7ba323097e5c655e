"""More than 200 modules learn a task each; the table says which do, and why the others cannot.

They are ours, and the networks of torchvision and timm that the table names: at most 31 M
parameters, one or two of each family. `python tests/networks/module_table.py` writes
module_table.md beside this file.
"""

import hashlib
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from odd_modules import ODDITIES
from torch import Tensor, nn

import impresslearn as il
from impresslearn.streams.torchvision import import_torchvision

Build = Callable[[], nn.Module]
TABLE = Path(__file__).with_suffix(".md")
TOLERANCE = 1e-3  # of the largest logit: batches of other sizes are added up in other orders
RECIPE = il.Recipe(epochs=0, min_steps=4, batch_size=6)


def fingerprint(module: nn.Module) -> str:
    """SHA-256 over the modes, and the names and bytes of all parameters and buffers."""
    digest = hashlib.sha256(str([each.training for each in module.modules()]).encode())
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        digest.update(f"{name} {tensor.requires_grad}".encode())
        if not nn.parameter.is_lazy(tensor):
            digest.update(tensor.detach().flatten().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def several(inputs: Any) -> il.Inputs:
    return il.Inputs(inputs) if isinstance(inputs, Tensor) else inputs


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest logit."""
    if found.shape != expected.shape:
        return float("inf")
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-6))


def differences(build: Build, module: nn.Module, inputs: Any, path: Path, head: str) -> dict:
    """How far logits are apart that should be equal: of rows alone, kept, again, and exported."""
    backbone = il.adapt(module, head=head)
    frozen = backbone.fingerprint()
    learner = il.ImpressLearner(backbone, task_recipe=RECIPE, progress=False).add_random_masks(2)
    learner.learn_task("a", (inputs, torch.arange(len(inputs)) % 2))
    logits = learner.logits(inputs, "a")
    assert (learner.predict(inputs, "a") == logits.argmax(1).numpy()).all()
    found = {}
    if not backbone.normalises_by_batch:
        rows = [learner.logits(inputs[place : place + 1], "a") for place in range(len(inputs))]
        found["alone"] = difference(torch.cat(rows), logits)
    learner.save(path)
    loaded = il.load(path, module=build(), progress=False)
    found["loaded"] = difference(loaded.logits(inputs, "a"), logits)
    again = il.ImpressLearner(backbone, task_recipe=RECIPE, progress=False).add_random_masks(2)
    again.learn_task("a", (inputs, torch.arange(len(inputs)) % 2))
    found["again"] = difference(again.logits(inputs, "a"), logits)
    given = several(inputs)
    exported = learner.export("a")(*given.arguments, **given.named)
    found["exported"] = difference(exported.detach(), logits)
    assert backbone.fingerprint() == frozen
    return found


def outcome(build: Build, module: nn.Module, inputs: Any, head: str = "own") -> dict[str, Any]:
    """The differences, and "equal", "differs", or the error and its kind."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = differences(build, module, inputs, Path(folder) / "a.impress", head)
        except Exception as error:
            line = str(error).replace(f"{folder}/", "")
            clear = isinstance(error, il.ImpressLearnError) and bool(line) and "\n" not in line
            return {"outcome": line or repr(error), "error": type(error).__name__, "clear": clear}
    equal = max(found.values()) <= TOLERANCE
    return {"outcome": "equal" if equal else "differs", "clear": equal, "difference": found}


def check(build: Build, inputs: Any) -> dict[str, Any]:
    """One row of the table; `shared` is the outcome where an error advises head="shared"."""
    torch.manual_seed(0)
    module, given = build(), inputs.clone()
    before = fingerprint(module)
    row = outcome(build, module, given)
    if 'head="shared"' in row["outcome"]:
        row["shared"] = outcome(build, module, given, "shared")["outcome"]
    kept = all(map(torch.equal, several(given).tensors, several(inputs).tensors))
    row["unchanged"] = kept and fingerprint(module) == before
    return row


def images_for(module: nn.Module) -> Tensor:
    """Six images of the smallest size that the network takes, in evaluation and in training."""
    for size in (64, 96, 128, 224, 256, 299):
        images = torch.randn(6, 3, size, size, generator=torch.Generator().manual_seed(0))
        try:
            with torch.no_grad():
                module.eval()(images[:1])
                module.train()(images[:2])
            return images
        except Exception:  # a module may raise anything where the size does not fit
            continue
    raise ValueError(f"{type(module).__name__} takes no images")


def recorded(source: str) -> dict[str, str]:
    """Name -> result of the modules from a source, as the table has them."""
    rows = [line.split(" | ") for line in TABLE.read_text().splitlines()]
    return {name: result for first, name, result, _ in rows[2:] if first == f"| {source}"}


def entries() -> Iterator[tuple[str, str, Build, Any]]:
    """Source, name, what builds it, and its inputs or None for images."""
    for name, (build, inputs) in ODDITIES.items():
        yield "by hand", name, build, inputs
    torchvision = import_torchvision()
    import timm

    for name in recorded("torchvision"):
        settings = {"weights_backbone": None} if name.startswith(("deeplab", "lraspp")) else {}
        build = partial(torchvision.models.get_model, name, weights=None, **settings)
        yield "torchvision", name, build, None
    for name in recorded("timm"):
        yield "timm", name, partial(timm.create_model, name), None


def main() -> None:
    rows = []
    for source, name, build, inputs in entries():
        inputs = images_for(build()) if inputs is None else inputs
        rows.append({"source": source, "name": name} | check(build, inputs))
    assert all(row["unchanged"] for row in rows)
    lines = ["| from | module | result | with a shared head |", "|---|---|---|---|"]
    for row in rows:
        shared = row.get("shared", "")
        lines.append(f"| {row['source']} | {row['name']} | {row['outcome']} | {shared} |")
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
