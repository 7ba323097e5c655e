"""What the OpenAPI document promises is what happens, tried with requests drawn from it.

IMPRESSLEARN_CONTRACT_EXAMPLES: requests drawn for each operation, well-formed and not (10).
"""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from serving import JSON, NPY

from toys import blobs

pytest.importorskip("schemathesis", reason="schemathesis is not installed")

import schemathesis
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

EXAMPLES = int(os.environ.get("IMPRESSLEARN_CONTRACT_EXAMPLES", "10"))
LOOKUPS = [("GET", "/tasks"), ("GET", "/task"), ("GET", "/versions")]
PREDICTIONS = [("POST", "/predict"), ("POST", "/infer")]
NAMES = {"customer 7": "new 0", "site a": "new 0", "site b": "new 1"}
TOKEN = {"Authorization": "Bearer s3cret"}


@pytest.fixture(scope="module")
def contract(server):
    """The document of a running server, without its token: every request brings that."""
    document = server.ask("GET", "/openapi.json", None, TOKEN)[1]
    for path, methods in document["paths"].items():
        for operation in methods.values():
            wanted = None if path == "/health" else [{"HTTPBearer": []}]
            assert operation.pop("security", None) == wanted
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=f"http://127.0.0.1:{server.port}")
    return schema


@pytest.mark.parametrize(
    ("mode", "method", "path"),
    [
        (GenerationMode.POSITIVE, "GET", "/health"),
        *((mode, *each) for mode in GenerationMode for each in (*LOOKUPS, *PREDICTIONS)),
    ],
)
def test_requests_are_answered_as_documented(contract, mode, method, path):
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(contract[path][method].as_strategy(generation_mode=mode))
    def check(case):
        # Which inputs fit is the network's matter, and which names there are the store's; no
        # document can tell, so well-formed requests may be refused.
        response = case.call(headers=TOKEN)
        if response.status_code != 413:  # for malformed ones too, whose bodies may be large
            left_out = [positive_data_acceptance]
            case.validate_response(response, headers=TOKEN, excluded_checks=left_out)

    check()


def test_operations_and_their_problems_are_documented(client):
    document = client.get("/openapi.json").json()
    found = {
        (method, path): " ".join(sorted(operation["responses"]))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert found == {
        ("get", "/health"): "200 500 503",
        ("get", "/tasks"): "200 422 500 503",
        ("get", "/task"): "200 404 422 500 503",
        ("get", "/versions"): "200 404 422 500 503",
        ("post", "/predict"): "200 400 404 408 413 415 422 500 503",
        ("post", "/infer"): "200 400 404 408 413 415 422 500 503",
    }
    for path in ("/predict", "/infer"):
        contents = document["paths"][path]["post"]["requestBody"]["content"]
        assert set(contents) == {*JSON.values(), *NPY.values(), "application/octet-stream"}
        for example in contents["application/json"]["schema"]["examples"]:
            inputs = blobs(50)[0][: len(example["inputs"])].tolist()
            text = json.dumps(example | {"inputs": inputs})
            for name, known in NAMES.items():
                text = text.replace(name, known)
            assert client.post(path, content=text, headers=JSON).status_code == 200


def test_the_page_needs_nothing_from_elsewhere(client):
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "src=" not in page.text
    assert "http" not in page.text.replace("HTTP", "")
    for method, path in (("GET", "/health"), *LOOKUPS, *PREDICTIONS):
        assert f"{method} {path}" in page.text
    for shown in ("customer 7", "mixed batch", '<details id="Inference">', 'href="#Problem"'):
        assert shown in page.text
