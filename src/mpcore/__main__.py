"""`python -m mpcore` is the command line."""

from mpcore.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
