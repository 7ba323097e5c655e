"""What the OpenAPI document promises is what happens, tried with requests drawn from it.

IMPRESSLEARN_CONTRACT_EXAMPLES: requests drawn for each operation, well-formed and not (10).
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from serving import Request

from toys import blobs

pytest.importorskip("schemathesis", reason="schemathesis is not installed")

import schemathesis
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

EXAMPLES = int(os.environ.get("IMPRESSLEARN_CONTRACT_EXAMPLES", "10"))
ASKING = ["GET /tasks", "GET /task", "POST /predict", "POST /infer"]
TOKEN = {"Authorization": "Bearer s3cret"}


@pytest.fixture(scope="module")
def contract(server):
    """The document of a running server, without its token: every request brings that."""
    document = server.ask(Request("document", "GET", "/openapi.json", headers=TOKEN))[1]
    for path, methods in document["paths"].items():
        for operation in methods.values():
            wanted = None if path == "/health" else [{"HTTPBearer": []}]
            assert operation.pop("security", None) == wanted
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=f"http://127.0.0.1:{server.port}")
    return schema


@pytest.mark.parametrize("path", ["GET /health", *ASKING])
def test_well_formed_requests_get_documented_answers(contract, path):
    keep(contract, path, GenerationMode.POSITIVE)


@pytest.mark.parametrize("path", ASKING)
def test_malformed_requests_are_refused_as_documented(contract, path):
    keep(contract, path, GenerationMode.NEGATIVE)


def keep(contract, path, mode):
    """Draws requests for an operation and holds every answer against the document."""
    method, _, path = path.partition(" ")

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(contract[path][method].as_strategy(generation_mode=mode))
    def check(case):
        # Which inputs fit is the network's matter, and which names there are the store's; no
        # document can tell, so well-formed requests may be refused.
        case.call_and_validate(headers=TOKEN, excluded_checks=[positive_data_acceptance])

    check()


def test_operations_and_their_problems_are_documented(client):
    document = client.get("/openapi.json").json()
    found = {
        (method, path): set(operation["responses"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    asking = {"200", "400", "404", "408", "413", "415", "422", "500", "503"}
    assert found == {
        ("get", "/health"): {"200", "500", "503"},
        ("get", "/tasks"): {"200", "422", "500", "503"},
        ("get", "/task"): {"200", "404", "422", "500", "503"},
        ("post", "/predict"): asking,
        ("post", "/infer"): asking,
    }
    for operation in (document["paths"][path]["post"] for path in ("/predict", "/infer")):
        contents = operation["requestBody"]["content"]
        assert set(contents) == {
            "application/json",
            "application/x-npy",
            "application/octet-stream",
        }
        assert contents["application/json"]["schema"]["examples"]


def test_the_page_needs_nothing_from_elsewhere(client):
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "src=" not in page.text
    assert "http" not in page.text.replace("HTTP", "")
    for path in ("GET /health", "GET /tasks", "GET /task", "POST /predict", "POST /infer"):
        assert path in page.text


def test_documented_examples_are_well_formed(direct, client):
    document = client.get("/openapi.json").json()
    for path in ("/predict", "/infer"):
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        for example in body["schema"]["examples"]:
            example["inputs"] = blobs(50)[0][: len(example["inputs"])].tolist()
            swapped = {"customer 7": "new 0", "site a": "new 0", "site b": "new 1"}
            for key in ("task", "among"):
                given = example.get(key)
                if isinstance(given, list):
                    example[key] = [swapped[name] for name in given]
                elif given:
                    example[key] = swapped[given]
            assert client.post(path, json=example).status_code == 200
