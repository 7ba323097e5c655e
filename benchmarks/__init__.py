"""The paper's figures and tables, rival methods and speed: run from the repository, not installed."""
