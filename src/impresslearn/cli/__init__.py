"""The `impresslearn` command: argument parsing only, one file per command.

`app` gathers the commands; a command imports the library inside its function, so that `--help`
does not wait for torch. `main` is the entry point of the installed script: whatever the library
raises on purpose becomes one line on stderr and exit status 2.
"""

import os


def main() -> None:
    """Run the command line and exit: 0 done, 1 reader gone, 2 unusable input, 130 interrupted."""
    # Threads that spin while they wait starve each other on a busy machine: with two other jobs on
    # two cores the demo took 200 s spinning and 35 s sleeping. Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

    from impresslearn.cli.output import accept_every_character, error, info
    from impresslearn.errors import ImpressLearnError

    accept_every_character()
    try:
        from impresslearn.cli.app import app

        app(prog_name="impresslearn")
    except ImpressLearnError as failure:
        error("error", failure)
        raise SystemExit(2) from None
    except OSError as failure:  # as for a full disk
        info(f"error: {failure}")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
