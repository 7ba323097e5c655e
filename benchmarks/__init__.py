"""The paper's figures and tables, rival methods and speed: not installed, run from here."""
