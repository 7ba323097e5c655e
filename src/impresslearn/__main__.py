"""`python -m impresslearn`: the same as the `impresslearn` command."""

from impresslearn.cli import main

if __name__ == "__main__":
    main()
