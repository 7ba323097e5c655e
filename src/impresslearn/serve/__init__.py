"""Predictions over HTTP: `impresslearn serve STORE`, or `create_app` in your own server.

`server` makes the FastAPI application and runs it with uvicorn. `requests` reads bodies and answers
errors. `pools` limits and counts the work. For TLS, slow clients and rate limits, put a reverse
proxy in front.
"""

from impresslearn.errors import MissingDependencyError

try:
    from impresslearn.serve.server import create_app as create_app
    from impresslearn.serve.server import run_server as run_server
except ModuleNotFoundError as error:
    line = f"serving needs {error.name}: pip install 'impresslearn[serve]'"
    raise MissingDependencyError(line) from None
