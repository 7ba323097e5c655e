"""Predictions over HTTP: `impresslearn serve STORE`, or `create_app` in your own server.

`server` is the FastAPI application and runs it with uvicorn, `protocol` bounds headers, `requests`
reads bodies and answers errors, `pools` bounds and counts the work. TLS, slow clients and rate
limits are the work of a reverse proxy in front.
"""

from impresslearn.errors import MissingDependencyError

try:
    import fastapi  # noqa: F401
    import httptools  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError:
    raise MissingDependencyError(
        "serving needs fastapi, httptools and uvicorn: pip install 'impresslearn[serve]'"
    ) from None

from impresslearn.serve.server import ServeSettings as ServeSettings
from impresslearn.serve.server import create_app as create_app
from impresslearn.serve.server import run_server as run_server
