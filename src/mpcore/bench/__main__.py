"""`python -m mpcore.bench` is `mpcore bench`."""

from mpcore.bench.command import main

if __name__ == "__main__":
    raise SystemExit(main())
