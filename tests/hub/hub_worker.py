"""A process that does what it is told, line by line, and can reach nothing but this machine.

Each line of its input is a JSON string of Python statements, run in one namespace; each line of
its output {"value": what they left in `result`} or {"error": [the error's classes], "line": its
text}.
"""

from __future__ import annotations

import ipaddress
import json
import os
import sys
import time

CONTACTED: set[str] = set()


def only_this_machine(event: str, arguments: tuple) -> None:
    """An audit hook, which nothing in the process can go around or remove."""
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    else:
        return
    CONTACTED.add(str(host))
    if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
        raise ConnectionRefusedError(f"{host} is not this machine")


def main() -> None:
    sys.addaudithook(only_this_machine)
    # What is printed, by whatever library, must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    time.sleep = lambda seconds: None  # the client waits up to 20 seconds before it gives up
    known: dict = {"CONTACTED": CONTACTED}
    for line in sys.stdin:
        known.pop("result", None)
        try:
            exec(json.loads(line), known)
            answer = {"value": known.get("result")}
        except Exception as error:
            answer = {"error": [each.__name__ for each in type(error).__mro__], "line": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
