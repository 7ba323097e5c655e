"""Made-up result records of every kind: plausible in shape, measured nowhere."""

import json
import random

HEAD = {
    "format": 1,
    "scale": "small",
    "claim": "Accuracy grows with the number of masks and reaches that of a dedicated mask.",
    "data": "made-up numbers, no measurement",
    "settings": {
        "stream": {"name": "permuted_mnist", "tasks": 110},
        "mask": {"allocation": "erdos_renyi", "recipe": {"lr": 0.01, "epochs": 2}},
        "sparsities": [0.8, 0.9],
    },
    "seeds": [0, 1, 2],
    "versions": {"python": "3.11.7", "torch": "2.13.0"},
    "hardware": {"machine": "x86_64", "cores": 2},
    "seconds": 312.4,
    "job_seconds": 5821.0,
    "finding": "",
}
ROOM = {"X": 0.1, "homogeneous": 0.93, "heterogeneous": 0.97, "GN": 0.975, "random": 0.9}


def comparison(target="permuted-mnist", seed=0):
    """The paper's plot: methods over N, a dedicated mask as the reference."""
    draw = random.Random(seed)
    rows = []
    for run in (0, 1, 2):
        for sparsity in (0.8, 0.9):
            common = {"seed": run, "sparsity": sparsity}
            for task in range(10):
                name = f"permuted-{100 + task}"
                rows.append(
                    {"method": "supsup", "task": name, **common, "bytes_per_task": 33275}
                    | {"accuracy": draw.gauss(0.972, 0.004)}
                )
                for masks in (100, 5, 10, 30, 240):
                    for method, room in ROOM.items():
                        if method == "random" and masks < 10:
                            continue
                        mean = room if method == "X" else room - 0.6 * 0.75 ** (masks**0.6)
                        spread = 0.02 if method == "X" else 0.006 + 0.4 / (masks + 8)
                        rows.append(
                            {"method": method, "task": name, **common, "masks": masks}
                            | {"accuracy": min(max(draw.gauss(mean, spread), 0), 1)}
                            | {"bytes_per_task": 66 if method == "X" else 12 * masks + 6}
                        )
    figure = {
        "kind": "box", "title": "Accuracy over the number of masks", "x": "masks", "y": "accuracy",
        "group": "method", "order": ["X", "heterogeneous", "homogeneous", "GN", "random"],
        "where": {"sparsity": 0.9}, "reference": {"method": "supsup"},
        "x_label": "basis masks N", "y_label": "test accuracy",
    }  # fmt: skip
    table = {
        "title": "Mean test accuracy and bytes a task",
        "columns": ["method", "masks"],
        "values": ["accuracy", "bytes_per_task"],
    }
    return HEAD | {
        "target": target,
        "title": "Permuted MNIST: accuracy over the number of masks",
        "finding": "With 240 masks the distance to a dedicated mask is below one point.",
        "rows": rows,
        "figures": [figure],
        "tables": [table],
    }


def frontier(seed=1):
    """Accuracy over bytes, several families of methods."""
    draw = random.Random(seed)
    families = {
        "heterogeneous": (2.1, 0.93), "per unit": (2.4, 0.975), "low precision": (1.7, 0.91),
        "supsup": (4.2, 0.972), "head only": (3.1, 0.88), "all weights": (5.7, 0.983),
    }  # fmt: skip
    rows = [
        {
            "method": method, "task": f"task-{task}", "seed": run, "masks": masks,
            "bytes_per_task": round(10**exponent * masks / 10),
            "accuracy": min(draw.gauss(top - 0.35 / masks**0.7, 0.004 + 0.01 / masks), 1),
        }
        for method, (exponent, top) in families.items()
        for masks in ((10,) if method in ("supsup", "all weights") else (3, 10, 30, 100))
        for run in (0, 1, 2)
        for task in range(6)
    ]  # fmt: skip
    figure = {
        "kind": "line", "title": "Accuracy over bytes per task", "x": "bytes_per_task",
        "y": "accuracy", "group": "method", "log_x": True, "frontier": True, "points": ["masks"],
        "ours": ["heterogeneous", "per unit", "low precision"], "y_label": "test accuracy",
    }  # fmt: skip
    return HEAD | {
        "target": "frontier",
        "title": "What a byte buys",
        "rows": rows,
        "figures": [figure],
        "tables": [
            {"columns": ["method", "masks"], "values": ["accuracy", "bytes_per_task"]},
        ],
    }


def task_order(seed=2):
    """Heat maps of every scale: p-values with differences, differences, accuracies."""
    draw = random.Random(seed)
    rows = [
        {"masks": masks, "sparsity": sparsity, "p_value": draw.random() ** 3}
        | {"difference": draw.gauss(0, 2), "accuracy": draw.random()}
        for sparsity in (0.95, 0.9, 0.8)
        for masks in (3, 10, 20)
    ]
    common = {"kind": "heatmap", "x": "masks", "y": "sparsity"}
    return HEAD | {
        "target": "task-order",
        "title": "Two orders of the tasks",
        "scale": "paper",
        "finding": "The order matters where masks are few.",
        "rows": rows,
        "figures": [
            common | {"title": "p-values", "value": "p_value", "text": "difference"},
            common | {"title": "Accuracy", "value": "accuracy"},
            common | {"title": "Difference alone", "value": "difference"},
        ],
        "tables": [],
    }


def overlap(seed=3):
    """Bars by layer, and the parameter table with cells as they are."""
    draw = random.Random(seed)
    layers = ["conv1", *(f"layer{i}.{j}.conv{k}" for i in (1, 2) for j in (0, 1) for k in (1, 2))]
    rows = [
        {"layer": layer, "kind": kind, "seed": run, "pair": pair}
        | {"overlap": draw.gauss(base + 0.03 * place, 0.01)}
        for place, layer in enumerate(layers)
        for kind, base in (("heterogeneous", 0.2), ("homogeneous", 0.12), ("random", 0.05))
        for run in (0, 1, 2)
        for pair in range(4)
    ]
    cells = [
        ["PermutedMNIST", "784!", 10, "LeNet-300-100", "266K", 65, 100, 300, 1, 55],
        ["RotatedMNIST", "359", 10, "LeNet-300-100", "266K", 65, 5, 15, 1, 67],
    ]
    header = ["Dataset", "Tasks", "K", "Model", "Params", "Mask", "N", "|α|", "Cost*", "Ratio"]
    return HEAD | {
        "target": "overlap",
        "title": "Overlap of masks, layer by layer",
        "scale": "smoke",
        "rows": rows,
        "figures": [
            {"kind": "bar", "title": "Overlap by layer", "x": "layer", "y": "overlap",
             "group": "kind", "y_label": "Jaccard overlap"},
            {"kind": "bar", "title": "Overlap by kind", "x": "kind", "y": "overlap"},
        ],
        "tables": [{"title": "Table 1", "header": header, "rows_verbatim": cells}],
    }  # fmt: skip


def crowded(groups=12, positions=8, seed=4):
    """As much as a figure has to bear."""
    draw = random.Random(seed)
    rows = [
        {"method": f"method {group}", "task": f"task-{task}", "seed": 0, "masks": 2**place}
        | {"accuracy": min(draw.gauss(0.6 + 0.03 * place + 0.012 * group, 0.03), 1)}
        for group in range(groups)
        for place in range(positions)
        for task in range(10)
    ]
    common = {"x": "masks", "y": "accuracy", "group": "method"}
    return HEAD | {
        "target": "crowded",
        "title": "Twelve methods at eight positions",
        "rows": rows,
        "figures": [
            {"kind": "box", "title": "Boxes", **common},
            {"kind": "line", "title": "Lines", **common, "log_x": True},
            {"kind": "bar", "title": "Bars", **common},
        ],
        "tables": [],
    }


EVIL = "</script><script>alert(1)</script><b>$x_{1}$&"


def hostile(name=EVIL):
    """A name wherever a record may hold one."""
    rows = [
        {"method": name, name: name, "masks": 3, "accuracy": 0.5, "task": name},
        {"method": "supsup" + name, name: name, "masks": 3, "accuracy": 0.6, "task": name},
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
    return HEAD | words | {
        "target": "hostile", "rows": rows, "figures": figures, "tables": tables,
        "settings": {name: {name: [name]}}, "versions": {name: name}, "hardware": {name: name},
    }  # fmt: skip


ALL = (comparison, frontier, task_order, overlap, crowded)


def write(folder, *records):
    """Each record as its file."""
    for record in records:
        path = folder / f"{record['target']}.json"
        path.write_text(json.dumps(record), encoding="utf-8")
