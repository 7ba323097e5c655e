"""The names at the top of the package: all resolve, and none costs anything before it is used."""

import ast
from pathlib import Path

import pytest

import impresslearn
from toys import in_a_new_process


@pytest.mark.parametrize("name", impresslearn.__all__)
def test_resolves(name):
    value = getattr(impresslearn, name)
    assert value is getattr(impresslearn, name)
    assert name in dir(impresslearn)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(impresslearn.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.asname: f"impresslearn.{alias.name}" if node.module == "impresslearn" else node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert seen == impresslearn._MODULE_OF


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Impresslearner'"):
        _ = impresslearn.Impresslearner


def test_import_alone_loads_nothing_heavy():
    loaded = in_a_new_process("-c", "import impresslearn, sys; print(*sys.modules)").split()
    assert not {"torch", "numpy", "numba", "altair", "rich"} & set(loaded)


def test_the_learner_loads_what_it_always_needs():
    loaded = in_a_new_process(
        "-c", "import impresslearn as il, sys; il.open_store; print(*sys.modules)"
    )
    assert "torch" in loaded.split()
    assert not {"scipy", "sklearn", "altair", "rich.table", "fastapi"} & set(loaded.split())


def test_submodules_stay_reachable_in_any_order():
    code = "import impresslearn as il; print(il.streams.__name__, il.InputError.__name__)"
    assert in_a_new_process("-c", code) == "impresslearn.streams InputError"
