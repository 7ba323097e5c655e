"""Who may not ask, and what fails below the server; messages.md has what is wrong in a request."""

import pytest
from fastapi.testclient import TestClient

from conftest import problem, request
from impresslearn.errors import StoreError
from impresslearn.serve import create_app


@pytest.fixture(scope="module")
def guarded(direct):
    """An app for whoever has the token s3cret."""
    headers = {"Authorization": "Bearer s3cret"}
    with TestClient(create_app(direct, token="s3cret"), headers=headers) as client:
        yield client


@pytest.mark.parametrize("path", ["/tasks", "/task?name=new%200", "/predict", "/infer"])
def test_without_the_token_only_health_and_the_documentation_answer(guarded, path):
    method = "POST" if path in ("/predict", "/infer") else "GET"
    for token in ("", "Bearer", "Bearer wrong", "Basic s3cret", "Bearer é"):
        answer = guarded.request(method, path, headers={"Authorization": token.encode("latin1")})
        assert answer.headers["www-authenticate"] == "Bearer"
        assert problem(answer, 401) == "a valid token is needed: Authorization: Bearer TOKEN"
    assert guarded.request(method, path).status_code in (200, 415)
    assert guarded.get("/health", headers={"Authorization": ""}).status_code == 200


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (StoreError("the store\nis gone"), 503, "the store is gone"),
        (ZeroDivisionError("secret"), 500, "the server failed on this request; its log has the"),
    ],
)
def test_errors_from_below(direct, monkeypatch, error, status, line):
    def fail(self, request):
        raise error

    monkeypatch.setattr("impresslearn.serve.server.Service.predict", fail)
    with TestClient(create_app(direct), raise_server_exceptions=False) as client:
        answer = client.post("/predict", json=request())
    assert problem(answer, status).startswith(line)
