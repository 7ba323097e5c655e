"""Writes golden.json, from the root of the repository: `python tests/golden/make.py`.

The values there were made at commit f0677b7, before parametrisations and store were rewritten. Make
them again only where results are meant to change, and say so in the commit.
"""

import json
import warnings
from pathlib import Path

from golden_problems import dedicated, fixed_inputs, learn, tasks

FILE = Path(__file__).with_name("golden.json")


def main() -> None:
    """One line of JSON per problem: the bytes of its task, and the logits of the fixed inputs."""
    warnings.simplefilter("ignore")  # tasks of five steps are warned about
    lines = []
    for problem in (*tasks(), *dedicated()):
        learner = learn(problem)
        logits = learner.logits(fixed_inputs(), "learned").double()
        value = {
            "bytes": learner.tasks_["learned"].bytes,
            "logits": [[float(f"{number:.7g}") for number in row] for row in logits.tolist()],
        }
        lines.append(f"{json.dumps(problem.key)}: {json.dumps(value)}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(lines)} problems in {FILE}")


if __name__ == "__main__":
    main()
