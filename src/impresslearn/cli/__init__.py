"""The `impresslearn` command: `main` runs it and sets the exit status.

Commands import the library inside their functions, so that `--help` does not wait for torch.
"""

from impresslearn.cli.app import main as main
