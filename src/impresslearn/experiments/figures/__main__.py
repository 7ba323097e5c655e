"""Checks documents whose sources are in the folder given: `docs/figures` by default."""

import sys
from pathlib import Path

from impresslearn.errors import ImpressLearnError
from impresslearn.experiments.figures.check import check_folder

if __name__ == "__main__":
    try:
        found = check_folder(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/figures"))
    except ImpressLearnError as error:
        sys.exit(str(error))
    print(*found.faults, sep="\n", end="\n" if found.faults else "")
    print(found.summary)
    sys.exit(1 if found.faults else 0)
