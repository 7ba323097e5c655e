"""The `impresslearn` command: argument parsing only, one file per command.

`app` gathers the commands; a command imports the library inside its function, so that `--help`
does not wait for torch. `main` is the entry point of the installed script: whatever the library
raises on purpose becomes one line on stderr and exit status 2.
"""

import sys


def main() -> None:
    """Run the command line and exit: 0 done, 2 unusable input, 130 interrupted."""
    from impresslearn.errors import ImpressLearnError

    try:
        from impresslearn.cli.app import app

        app(prog_name="impresslearn")
    except ImpressLearnError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
