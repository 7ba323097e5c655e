"""Made-up result records of every kind: plausible in shape, measured nowhere."""

import json
import random
from itertools import product

HEAD = {
    "format": 1,
    "scale": "small",
    "claim": "Accuracy grows with the number of masks and reaches that of a dedicated mask.",
    "data": "made-up numbers, no measurement",
    "settings": {"mask": {"allocation": "erdos_renyi"}, "sparsities": [0.8, 0.9]},
    "seeds": [0, 1, 2],
    "versions": {"python": "3.11.7", "torch": "2.13.0"},
    "hardware": {"machine": "x86_64", "cores": 2},
    "seconds": 312.4,
    "job_seconds": 5821.0,
}


def measured(mean, **keys):
    """A row for every combination of these values, with an accuracy around the mean."""
    draw = random.Random(0)
    combined = (dict(zip(keys, values, strict=True)) for values in product(*keys.values()))
    return [row | {"accuracy": min(draw.gauss(mean, 0.02), 1)} for row in combined]


def record(target, rows, figures=(), tables=(), **more):
    """A whole record."""
    shown = {"rows": rows, "figures": list(figures), "tables": list(tables)}
    return HEAD | {"target": target, "title": f"About {target}"} | shown | more


def comparison():
    """Methods over the number of masks, in every kind of figure."""
    common = {"task": ["a", "b", "c", "d", "e"], "seed": (0, 1, 2), "sparsity": (0.8, 0.9)}
    rows = measured(0.97, method=["supsup"], bytes=[33275], **common)
    for method, mean in {"X": 0.1, "homogeneous": 0.85, "heterogeneous": 0.9}.items():
        for masks in (30, 5, 240):
            some = {"method": [method], "masks": [masks], "bytes": [masks * len(method)]}
            rows += measured(mean, **some, **common)
    for place, row in enumerate(rows):
        row |= {"p_value": 0.9**place, "difference": place / 10 - 4.5}
    lines = {"y": "accuracy", "group": "method", "y_label": "test accuracy"}
    over_masks = {"x": "masks", "x_label": "basis masks N", **lines}
    order = ["X", "heterogeneous", "homogeneous"]
    chosen = {"where": {"sparsity": 0.9}, "reference": {"method": "supsup"}, "order": order}
    cells = {"kind": "heatmap", "x": "masks", "y": "sparsity"}
    figures = [
        {"kind": "box", **over_masks, **chosen},
        {"kind": "bar", **over_masks},
        {"kind": "line", **over_masks, "log_x": True},
        {
            "kind": "line",
            "x": "bytes",
            **lines,
            "frontier": True,
            "points": ["masks"],
            "ours": order,
        },
        cells | {"value": "p_value", "text": "difference"},
        cells | {"value": "accuracy"},
        cells | {"value": "difference"},
    ]
    table = {"columns": ["method", "masks"], "values": ["accuracy", "bytes"]}
    finding = "With 240 masks the distance to a dedicated mask is below one point."
    return record("permuted-mnist", rows, figures, [table], finding=finding)


def overlap():
    """Bars by layer, and a table with cells as they are."""
    layers = ["conv1", *(f"layer{n}.conv" for n in range(9)), "head"]
    rows = measured(0.2, layer=layers, kind=["heterogeneous", "random"], seed=(0, 1, 2))
    figures = [
        {"kind": "bar", "title": "By layer", "x": "layer", "y": "accuracy", "group": "kind"},
        {"kind": "bar", "title": "By kind", "x": "kind", "y": "accuracy"},
    ]
    cells = [["PermutedMNIST", "784!", 10, "266K"], ["RotatedMNIST", "359", 10, "266K"]]
    table = {"title": "T1", "header": ["Data", "Tasks", "K", "Params"], "rows_verbatim": cells}
    return record("overlap", rows, figures, [table], scale="smoke")


EVIL = "</script><script>alert(1)</script><i>$x_{1}$&"


def hostile(name=EVIL):
    """A name wherever a record may hold one."""
    rows = [
        {"method": method, name: name, "masks": 3, "accuracy": 0.5, "task": name}
        for method in (name, "supsup" + name)
    ]
    common = {"title": name, "caption": name, "x_label": name, "y_label": name, "x": name}
    lines = {**common, "y": "accuracy", "group": "method"}
    figures = [
        {"kind": "box", **lines, "reference": {"method": "supsup" + name}},
        {"kind": "line", **lines},
        {"kind": "bar", **lines},
        {"kind": "heatmap", **common, "y": "method", "value": "accuracy", "text": "task"},
    ]
    tables = [
        {"title": name, "columns": ["method", name], "values": ["accuracy"]},
        {"title": name, "header": [name], "rows_verbatim": [[name]]},
    ]
    words = dict.fromkeys(("title", "claim", "data", "finding"), name)
    facts = {key: {name: name} for key in ("settings", "versions", "hardware")}
    facts["highlights"] = [{"title": name, "value": "accuracy", "caption": name}]
    return record("hostile", rows, figures, tables, **words, **facts)


ALL = (comparison, overlap, hostile)


ABSENT = object()


def changed(whole, place, value):
    """A copy with another value at this place (keys and positions), or without it: ABSENT."""
    copied = json.loads(json.dumps(whole))
    part = copied
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    if value is ABSENT:
        del part[place[-1]]
    return copied


def write(folder, *records):
    """Each record as its file."""
    for each in records:
        path = folder / f"{each['target']}.json"
        path.write_text(json.dumps(each), encoding="utf-8")
