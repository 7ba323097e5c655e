"""Predictions over HTTP: `impresslearn serve STORE`, or `create_app` below a server of your own.

`app` has the routes. Below it: `desk` decides where work runs, `service` asks the learner,
`schemas` are requests and answers as they are documented, `asking` and `bodies` turn what came into
arrays and options, `limits` and `activations` bound what a request may take, `refusals` gives every
error its status and one line, `page` is the documentation as HTML. `server` runs an app with
uvicorn.
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
from impresslearn.serve.server import run_server
from impresslearn.serve.settings import ServeSettings

__all__ = ["ServeSettings", "create_app", "run_server"]
