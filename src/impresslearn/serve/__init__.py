"""Predictions over HTTP: `impresslearn serve STORE`, or `create_app` below a server of your own.

`app` has the routes and `service` computes their answers, in bounded memory. `schemas` are requests
and answers as checked and documented; `bodies` reads JSON and .npy. `limits` bounds the bytes and
seconds of a request, and `errors` gives every error its status and one line. `server` runs an app
with uvicorn.
"""

from impresslearn.errors import MissingDependencyError

try:
    import fastapi  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError:
    raise MissingDependencyError(
        "serving needs fastapi and uvicorn: pip install 'impresslearn[serve]'"
    ) from None

from impresslearn.serve.app import create_app
from impresslearn.serve.limits import ServeSettings
from impresslearn.serve.server import run_server

__all__ = ["ServeSettings", "create_app", "run_server"]
