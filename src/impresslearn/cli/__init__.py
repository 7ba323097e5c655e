"""The `impresslearn` command. `app` lists its commands; `main` runs them and sets the exit status.

Commands import the library inside their functions, so that `--help` does not wait for torch.
"""

import os
import warnings


def main() -> None:
    """Runs the command line: exit status 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    # Threads that spin while they wait starve each other on a busy machine: with two other jobs on
    # two cores the demo took 200 s spinning and 35 s sleeping. Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

    from impresslearn.cli.app import app
    from impresslearn.cli.output import accept_every_character, error, info
    from impresslearn.errors import ImpressLearnError

    accept_every_character()
    warnings.showwarning = lambda message, *_, **__: info(f"warning: {message}")
    try:
        app(prog_name="impresslearn")
    except (ImpressLearnError, OSError) as failure:
        error(failure)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
