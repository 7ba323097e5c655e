"""Many ways to give the same data: each teaches the same task, or is refused in one line."""

import functools

import numpy as np
import pytest
import torch
from torch.utils import data as torch_data

import impresslearn as il
from impresslearn.data.file_reader import FileReader
from impresslearn.errors import ImpressLearnError
from toys import Flow, Pairs, quick_learner, refused

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
arrow = pytest.importorskip("pyarrow")
hugging = pytest.importorskip("datasets")
Image = pytest.importorskip("PIL.Image")

COUNT, NAMES = 48, list("abcde")
DRAW = np.random.default_rng(0)
Y = np.arange(COUNT) % 3
WORDS = np.array(["cat", "dog", "emu"])[Y]


def drawn(high, noise, *shape):
    """Whole numbers, which every type of number holds, near those of their class."""
    near = DRAW.integers(0, high, (3, *shape))[Y]
    return near + DRAW.integers(0, noise, (COUNT, *shape))


X = (drawn(19, 5, 5) - 11).astype(np.float32)
PIXELS = drawn(200, 55, 3, 8, 8).astype(np.uint8)
PLAIN = {"table": X, "bits": (X > 0).astype(np.float32), "image": PIXELS}
PLAIN["grey"] = PIXELS[:, :1]
TABLE = pandas.DataFrame(X, columns=NAMES)
LABELLED = TABLE.assign(label=Y)
IMAGES = [Image.fromarray(each) for each in PIXELS.transpose(0, 2, 3, 1)]


class OnlyArray:
    """What only says how it becomes an array, as a table of a further library may."""

    def __array__(self, dtype=None, copy=None):
        return X


def data_set():
    return torch_data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


def rows():
    return hugging.Dataset.from_dict({"x": X.tolist(), "label": Y.tolist()})


def image_rows():
    names = hugging.ClassLabel(names=["cat", "dog", "emu"])
    form = hugging.Features({"image": hugging.Image(), "label": names})
    return hugging.Dataset.from_dict({"image": IMAGES, "label": Y}, features=form)


def mapped(folder):
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


def loader(data=None, **settings):
    return torch_data.DataLoader(data_set() if data is None else data, **settings)


def image_folder(folder, *suffixes, below=""):
    """Images in folders of classes, their suffixes in turn."""
    for place, (image, word) in enumerate(zip(IMAGES, WORDS, strict=True)):
        (folder / below / word).mkdir(parents=True, exist_ok=True)
        image.save(folder / below / word / f"{place:02}.{suffixes[place % len(suffixes)]}")
    return folder


def npz(folder, **arrays):
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def csv(folder, table):
    table.to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def parquet(folder, table):
    table.to_parquet(folder / "a.parquet")
    return folder / "a.parquet"


NUMBERED = pandas.Series(Y, index=range(COUNT, 0, -1))
BYTES, MISSING = list(WORDS.astype(bytes)), [None, *WORDS[1:]]
LAST, TENSORS = torch.channels_last, torch.from_numpy(X)

# Inputs of each kind; the labels are Y.
INPUTS = {
    "int8": ("table", lambda _: X.astype(np.int8)),
    "longdouble": ("table", lambda _: X.astype(np.longdouble)),
    "bool": ("bits", lambda _: X > 0),
    "memory-mapped": ("table", mapped),
    "objects": ("table", lambda _: X.astype(object)),
    "only __array__": ("table", lambda _: OnlyArray()),
    "lists": ("table", lambda _: X.tolist()),
    "Series of arrays": ("table", lambda _: pandas.Series(list(X))),
    "requires_grad": ("table", lambda _: TENSORS.clone().requires_grad_()),
    "DataFrame": ("table", lambda _: TABLE),
    "a column of truth": ("bits", lambda _: pandas.DataFrame(X > 0).astype({1: float})),
    "a column of objects": ("table", lambda _: TABLE.astype({"b": object})),
    "nullable": ("table", lambda _: TABLE.convert_dtypes()),
    "polars": ("table", lambda _: polars.DataFrame(X, schema=NAMES)),
    "polars, mixed": ("table", lambda _: polars.from_pandas(TABLE.astype({"a": "int64"}))),
    "Arrow": ("table", lambda _: arrow.table(TABLE)),
    "Arrow with an index": ("table", lambda _: arrow.table(TABLE.set_index(NUMBERED.index))),
    "Hugging Face column": ("table", lambda _: rows()["x"]),
    "channels_last": ("image", lambda _: torch.from_numpy(PIXELS).to(memory_format=LAST)),
    "pixels in [0, 1]": ("image", lambda _: PIXELS.astype(np.float32) / 255),
    "images": ("image", lambda _: IMAGES),
    "grey images": ("grey", lambda _: [Image.fromarray(each) for each in PIXELS[:, 0]]),
    "grey without channel": ("grey", lambda _: PIXELS[:, 0]),
}
# Labels; the inputs are X.
LABELS = {
    "Series with an index": NUMBERED,
    "Categorical": pandas.Categorical(Y),
    "nullable": pandas.Series(Y, dtype="Int64"),
    "polars": polars.Series(Y),
    "Arrow": arrow.chunked_array([Y[:9], Y[9:]]),
    "polars of words": polars.Series(WORDS, dtype=polars.Categorical),
    "Arrow of words": arrow.array(WORDS.tolist()).dictionary_encode(),
}
# Labelled data as a whole.
WHOLE = {
    "Hugging Face": ("table", lambda _: rows()),
    "Hugging Face as torch": ("table", lambda _: rows().with_format("torch")),
    "Hugging Face, streamed": ("table", lambda _: rows().to_iterable_dataset()),
    "Hugging Face, loaded": ("table", lambda _: loader(rows().with_format("torch"), batch_size=16)),
    "Hugging Face, Subset": ("table", lambda _: torch_data.Subset(rows(), range(COUNT))),
    "Hugging Face, images": ("image", lambda _: image_rows()),
    "Dataset of lists and words": ("table", lambda _: Pairs(X.tolist(), WORDS.tolist())),
    "Dataset of images": ("image", lambda _: Pairs(IMAGES, Y)),
    "TensorDataset": ("table", lambda _: data_set()),
    "DataLoader, shuffled": ("table", lambda _: loader(batch_size=8, shuffle=True)),
    "folder of several suffixes": ("image", lambda it: image_folder(it, "png", "bmp", "tiff")),
}
FILES = {
    ".csv": lambda folder: csv(folder, LABELLED),
    ".parquet": lambda folder: parquet(folder, LABELLED),
    ".parquet with an index": lambda folder: parquet(folder, LABELLED.set_index(NUMBERED.index)),
    ".parquet of words": lambda it: parquet(it, TABLE.assign(label=pandas.Categorical(WORDS))),
    ".npz of words": lambda folder: npz(folder, X=X, y=WORDS),
}

REFUSED = {
    "NUL": (lambda _: (X, ["b\0", *WORDS[1:]]), "a label ends in NUL"),
    "times": (lambda _: (X, Y.astype("datetime64[ns]")), "got np.datetime64"),
    "time": (lambda _: (X, list(Y.astype("timedelta64[ns]"))), "got np.timedelta64"),
    "bytes": (lambda _: (X, WORDS.astype(bytes)), "got b'emu'; decode them"),
    "loaded": (
        lambda _: torch_data.DataLoader(Flow(lambda: X)),
        "got Flow; take a pair of arrays out",
    ),
    "DatasetDict": (
        lambda _: hugging.DatasetDict(train=rows()),
        "one part, such as data\\['train'\\]",
    ),
    "text": (lambda _: rows().add_column("text", list(WORDS)), "text. is not numbers of one shape"),
    "no rows": (lambda _: hugging.Dataset.from_dict({"x": [], "label": []}), "hold no example"),
    "sizes": (lambda _: ([*IMAGES[1:], IMAGES[0].resize((9, 9))], Y), "must have one size"),
    "columns": (lambda _: rows().from_pandas(LABELLED), r"one tensor or table, got Inputs\(a: "),
    "train and val": (
        lambda it: image_folder(it, "png", below="train"),
        "or give .*train if it holds classes",
    ),
}
REFUSED_FILES = {
    "bytes in .parquet": (lambda it: parquet(it, TABLE.assign(label=BYTES)), "got b'cat'; decode"),
    "no label in .parquet": (lambda it: parquet(it, TABLE.assign(label=MISSING)), "row 1 has no"),
}
REFUSED_INPUTS = {
    "another column": (TABLE.assign(z=1), "the table has a column 'z'"),
    "no such column": (TABLE[NAMES[:4]], "the table has no column 'e'"),
    "data set": (data_set(), "without their labels, got TensorDataset"),
    "rows": (rows(), r"one column of a data set, as data\['x'\]"),
    "generator": (iter(X), "array, without labels, got .*iterator|generator"),
}


@functools.cache
def backbone_of(kind):
    sizes = {"in_features": PLAIN[kind][0].size, "widths": (24, 12)}
    return il.create_backbone("lenet_300_100", 3, head="own", **sizes)


def learner_of(kind, **settings):
    scale = il.Preprocessing.standardising(PLAIN[kind])
    return quick_learner(backbone_of(kind), preprocessing=scale, **settings).add_random_masks(4)


def taught(kind, data):
    """A learner and one with a readout, that learned, learned further and were shown features."""
    few = learner_of(kind, granularity="readout").learn_features(data, dimensions=6)
    return [each.learn_task("a", data).update_task("a", data) for each in (learner_of(kind), few)]


@functools.cache
def reference_of(kind):
    return taught(kind, (PLAIN[kind], Y))


def assert_same(kind, data, inputs, classes=(0, 1, 2)):
    for learner, reference in zip(taught(kind, data), reference_of(kind), strict=True):
        assert learner.tasks_["a"].classes == classes
        expected = reference.predict(PLAIN[kind], "a")
        assert (learner.predict(inputs, "a") == np.array(classes)[expected]).all()
        assert torch.allclose(reference.logits(inputs, "a"), reference.logits(PLAIN[kind], "a"))
        assert learner.score(data, "a") == (expected == Y).mean() > 0.9


def classes_in(way):
    return ("cat", "dog", "emu") if "words" in way or "folder" in way else (0, 1, 2)


@pytest.mark.parametrize("way", INPUTS)
def test_inputs(way, tmp_path):
    kind, give = INPUTS[way]
    assert_same(kind, (give(tmp_path), Y), give(tmp_path))


@pytest.mark.parametrize("way", LABELS)
def test_labels(way):
    assert_same("table", (X, LABELS[way]), X, classes_in(way))


@pytest.mark.parametrize("way", WHOLE)
def test_labelled_data(way, tmp_path):
    kind, give = WHOLE[way]
    assert_same(kind, give(tmp_path), PLAIN[kind], classes_in(way))


@pytest.mark.parametrize("way", FILES)
def test_files(way, tmp_path):
    path, reader = FILES[way](tmp_path), FileReader()
    assert_same("table", reader.examples(path), reader.inputs(path).inputs, classes_in(way))


@pytest.mark.parametrize("way", REFUSED)
def test_what_is_refused(way, tmp_path):
    give, line = REFUSED[way]
    learner = reference_of("table")[0]
    for verb in (learner.learn_task, learner.update_task, lambda _, data: learner.score(data, "a")):
        name = "b" if verb == learner.learn_task else "a"
        refused(line, verb, name, give(tmp_path), error=ImpressLearnError)


@pytest.mark.parametrize("way", REFUSED_FILES)
def test_files_that_are_refused(way, tmp_path):
    make, line = REFUSED_FILES[way]
    refused(line, FileReader().examples, make(tmp_path))


@pytest.mark.parametrize("way", REFUSED_INPUTS)
def test_inputs_that_are_refused(way):
    learner, (inputs, line) = learner_of("table").learn_task("a", (TABLE, Y)), REFUSED_INPUTS[way]
    refused(line, learner.predict, inputs, "a")


@pytest.mark.parametrize("frame", [TABLE, polars.from_pandas(TABLE), arrow.table(TABLE)])
@pytest.mark.parametrize("measured", [True, False])
def test_columns_in_another_order(frame, measured):
    plain = quick_learner(backbone_of("table")).add_random_masks(4)
    learner = (learner_of("table") if measured else plain).learn_task("a", (frame, Y))
    for other in (TABLE, polars.from_pandas(TABLE), arrow.table(TABLE)):
        turned = other.select(NAMES[::-1]) if hasattr(other, "select") else other[NAMES[::-1]]
        assert torch.equal(learner.logits(turned, "a"), learner.logits(frame, "a"))
        for data in ((turned, Y), il.streams.from_arrays({"a": [(turned, Y)] * 2})[0].test):
            assert learner.score(data, "a") == learner.score((frame, Y), "a") > 0.9


def test_flags_of_uint8_are_not_taken_for_pixels():
    learner = quick_learner(backbone_of("bits")).add_random_masks(4)
    flags, line = PLAIN["bits"].astype(np.uint8), "are only 0 and 1; give flags as"
    refused(line, il.Preprocessing.standardising, flags)
    refused(line, learner.learn_task, "a", (flags, Y))
    refused(line, learner.learn_task("a", (PLAIN["bits"], Y)).predict, flags, "a")
    scale = il.Preprocessing(pixels=True)
    assert scale.apply(flags).max() == np.float32(1 / 255)


def test_integers_of_a_table_s_file_are_pixels(tmp_path):
    levels = pandas.DataFrame(PIXELS[:, 0, 0, :5].astype(int), columns=NAMES)
    read = FileReader().inputs(csv(tmp_path, levels))
    scale = il.Preprocessing(pixels=True)
    prepared = scale.prepare(read.inputs, read.pixels, read.integers)
    assert torch.equal(prepared, scale.apply(levels))


def test_streamed_floats_beyond_pixels_refuse_pixels():
    levels = 9 + np.abs(X)
    learner = quick_learner(backbone_of("table")).add_random_masks(4)
    learner.learn_task("a", Pairs(levels, Y, np.random.random))
    refused("but other numbers are expected", learner.predict, levels.astype(np.uint8), "a")


def test_channels_first_and_last():
    learner, last = learner_of("image").learn_task("a", (IMAGES, Y)), PIXELS.transpose(0, 2, 3, 1)
    assert torch.equal(learner.logits(last, "a"), learner.logits(PIXELS, "a"))
    assert torch.equal(learner.logits(PIXELS.reshape(COUNT, -1), "a"), learner.logits(PIXELS, "a"))
    plain = quick_learner(backbone_of("image"), preprocessing=il.Preprocessing(pixels=True))
    plain.add_random_masks(4).learn_task("a", (PIXELS, Y))
    exported = plain.export("a")(torch.tensor(last))
    assert torch.allclose(exported, plain.logits(last, "a"))
    learner = learner_of("image").learn_task("a", (last, Y))
    refused(
        r"shape \(3, 8, 8\) cannot be given the shape \(8, 8, 3\)", learner.predict, IMAGES, "a"
    )
