"""What the wrong uses in `messages.md` need: names, files, commands and requests."""

import contextlib
import io
import shlex
import sqlite3
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import impresslearn as il
import models
import toys
from impresslearn.cli import main
from impresslearn.errors import ImpressLearnError
from toys import blobs, few_labels, lenet, mlp, quick_learner


class CommandError(ImpressLearnError):
    """What a command printed last on standard error before it failed."""


class RequestError(ImpressLearnError):
    """What the server answered with a status other than 200."""


class Useless:
    """A method whose predictions are too few."""

    def learn_task(self, name, data):
        pass

    def predict(self, inputs, task):
        return [0]


def command(line: str) -> None:
    """Runs a command in this process. Raises CommandError with its last line if it fails."""
    said = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["impresslearn", *shlex.split(line)]),
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
    ):
        try:
            main()
        except SystemExit as end:
            if end.code:
                lines = said.getvalue().strip().splitlines()
                raise CommandError(lines[-1] if lines else "") from None


def without(name: str, use: Callable[[], Any]) -> Any:
    """Uses the library as if a package were not installed."""
    with mock.patch.dict(sys.modules):
        for each in list(sys.modules):
            if each.partition(".")[0] == name or each.startswith("impresslearn.serve"):
                del sys.modules[each]
        sys.modules[name] = None  # type: ignore[assignment]
        return use()


def locked(use: Callable[[], Any]) -> Any:
    """Uses the library while another program writes to the store."""
    with contextlib.closing(sqlite3.connect("shop.impress")) as other:
        other.execute("BEGIN IMMEDIATE")
        return use()


def written(name: str, content: str | bytes) -> str:
    """The name of a file of this content."""
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return name


def make(seed: int) -> il.ImpressLearner:
    return quick_learner(seed=seed).add_random_masks(2)


def over(module: nn.Module) -> il.ImpressLearner:
    """A learner over a network of one's own."""
    return quick_learner(il.adapt(module)).add_random_masks(2)


def words() -> il.Preprocessing:
    """A preprocessing of text that knows two words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({"[UNK]": 0, "my": 1, "card": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return il.Preprocessing(tokenizer=made)


def write_files(learner: il.ImpressLearner, X: np.ndarray, Y: np.ndarray) -> None:
    """The files of the commands, in the present folder."""
    for folder in ("empty", "other", "pictures/cat", "pictures/dog", "damaged/cat", "damaged/dog"):
        Path(folder).mkdir(parents=True)
    for name in ("data", "other/data"):
        np.savez(f"{name}.npz", inputs=X, labels=Y)
    np.savez("wide.npz", inputs=np.hstack([X, X]), labels=Y)
    np.savez("nolabels.npz", inputs=X)
    np.savez("nan.npz", inputs=X * np.nan, labels=Y)
    np.savez("far.npz", inputs=1000 * X + 50, labels=Y)
    np.savez("new.npz", inputs=X, labels=Y + 7)
    header = ",".join(f"c{number}" for number in range(16))
    rows = [",".join(map(str, row)) for row in X.round(2).tolist()]
    labelled = "\n".join(f"{row},{label}" for row, label in zip(rows, Y, strict=True))
    texts = {
        "notes.txt": "notes",
        "damaged.json": '{"model": 3}',
        "text.csv": "text,label\nmy card,a\nmy pin,b\n",
        "table.csv": f"{header},label\n{labelled}\n",
        "words.csv": f"{header},label\n" + labelled.replace("1", "x"),
        "nolabel.csv": "\n".join([header, *rows]),
        "ragged.csv": f"{header},label\n{labelled}\n1,2,3,{'4,' * 20}",
        "header.csv": f"{header},label\n",
        "zero.csv": "",
        "net.py": "from torch import nn\nbroken = lambda: 1 / 0\n"
        "make = lambda: nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3))\n",
        "damaged/cat/1.png": "no picture",
        "damaged/dog/1.png": "no picture",
    }
    for path, text in texts.items():
        Path(path).write_text(text, encoding="utf-8")
    from PIL import Image

    for number, animal in enumerate(("cat", "dog")):
        Image.new("RGB", (8, 8), (90 * number,) * 3).save(f"pictures/{animal}/1.png")
    learner.save("shop.impress")
    make(0).save("bare.impress")
    own = quick_learner(il.adapt(mlp(12), input_shape=(16,))).add_random_masks(2)
    own.learn_task("letters", (X, Y)).save("mine.impress")
    whole = Path("shop.impress").read_bytes()
    middle = len(whole) // 2
    Path("zero.impress").write_bytes(b"")
    Path("cut.impress").write_bytes(whole[:middle])
    Path("newer.impress").write_bytes(whole[:60] + bytes([0, 0, 0, 99]) + whole[64:])  # its format
    # A mask's packed bits are the longest value: a byte inside it is neither a page's nor an index.
    Path("damaged.impress").write_bytes(whole[:middle] + b"\xaa" * 512 + whole[middle + 512 :])
    with contextlib.closing(sqlite3.connect("other.impress")) as other:
        other.execute("CREATE TABLE invoices (number INTEGER)")


def namespace() -> dict[str, Any]:
    """The names that the lines use, after writing the files of the commands."""
    import pandas
    from fastapi.testclient import TestClient

    from impresslearn.export import export_task
    from impresslearn.integrations.peft import ImpressConfig
    from impresslearn.serve import create_app
    from impresslearn.streams.torchvision import import_extra

    X, Y = data = blobs(count=60)[0].numpy().round(2), np.arange(60) % 3  # the same anywhere
    learner = quick_learner().learn_basis("digits", data).learn_task("letters", data)
    write_files(learner.add_random_masks(1), X, Y)
    app = create_app("shop.impress")
    client = TestClient(app, raise_server_exceptions=False)

    def answer(reply: Any) -> None:
        if reply.status_code != 200:
            raise RequestError(f"{reply.status_code} {reply.json()['error']}")

    def post(path: str, body: Any, kind: str = "application/json", **headers: str) -> None:
        how = {"content": body} if isinstance(body, bytes) else {"json": body}
        answer(client.post(path, headers={"Content-Type": kind, **headers}, **how))

    closed, busy = (il.open_store("shop.impress", timeout=0.1, progress=False) for _ in range(2))
    closed.close()
    nan = X.copy()
    nan[5, 3] = np.nan
    stream = il.streams.rotated_digits(tasks=2)
    tasks = dict.fromkeys(("one", "two"), ((X, Y), (X, Y)))
    wild = il.Recipe(lr=1e30, epochs=0, min_steps=30)
    coded = {"granularity": "unit", "precision": "coded", "max_bytes": 1}
    masked = few_labels(lenet(head="own")).add_random_masks(2)
    own: dict[str, Any] = {
        "X": X, "Y": Y, "data": data, "nan": nan, "stream": stream, "tasks": tasks, "mlp": mlp(12),
        "learner": learner, "network": learner.backbone, "text": words(),
        "empty": quick_learner(), "small": quick_learner(**coded),
        "wild": quick_learner(task_recipe=wild),
        "masked": masked, "features": masked.features(X),
        "examples": il.Examples(torch.tensor(X), Y),
        "pairs": TensorDataset(torch.tensor(X), torch.tensor(Y)), "DataLoader": DataLoader,
        "table": pandas.DataFrame(X), "some": (X[Y < 2], Y[Y < 2]),
        "readouts": few_labels(il.create_backbone("linear", in_features=16, head="own")),
        "other_bank": il.random_bank(lenet(5).layers, 2),
        "stored": il.load("mine.impress", module=mlp(12)), "closed": closed, "busy": busy,
        "opened": il.open_store("shop.impress", readonly=True, progress=False),
        "compared": il.compare({"a": make}, tasks, progress=False),
        "get": lambda path: answer(client.get(path)), "post": post,
        "export_task": export_task, "create_app": create_app,
        "get_peft_model": import_extra("peft", "PEFT").get_peft_model,
        "ImpressConfig": ImpressConfig, "pandas": pandas, "threads": ThreadPoolExecutor(1),
    }  # fmt: skip
    for name in ("wild", "small"):
        own[name].add_random_masks(2)
    return vars(models) | vars(toys) | globals() | own
