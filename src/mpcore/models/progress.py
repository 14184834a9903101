"""What `evaluate` and `predict` show of their pass over the batches."""

import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from mpcore.callbacks import Logs, format_logs

T = TypeVar("T")


def shown(verbose: str | int) -> str | int:
    """Return `verbose`, checked; 0 for a process without a standard error stream."""
    if verbose not in ("auto", 0, 1, 2):
        raise ValueError(
            f"`verbose` must be 'auto', 0, 1 or 2. Received: verbose={verbose!r}"
        )
    return 0 if sys.stderr is None else verbose


class Progress:
    """One pass over batches, shown on standard error.

    Parameters
    ----------
    title : str
    steps : int
        Number of batches.
    verbose : {'auto', 0, 1, 2}
        1: a bar. 2: a line at the end, if there are logs. 'auto' and 0: nothing.
    """

    def __init__(self, title: str, steps: int, verbose: str | int) -> None:
        verbose = shown(verbose)
        self._title = title
        self._line = verbose == 2
        self._bar: Any = None
        if verbose == 1:
            # Here, for it takes a quarter of the time of `import mpcore`.
            from tqdm import tqdm  # type: ignore[import-untyped]

            self._bar = tqdm(total=steps, desc=title, unit="step", dynamic_ncols=True)

    def __enter__(self) -> Self:
        """Go on."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave no bar open."""
        if self._bar is not None:
            self._bar.close()

    def over(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches; the bar moves on after each."""
        for batch in batches:
            yield batch
            if self._bar is not None:
                self._bar.update()

    def finish(self, logs: Logs) -> None:
        """Show what came out."""
        if self._bar is not None:
            self._bar.set_postfix_str(format_logs(logs))
        elif self._line:
            print(f"{self._title} - {format_logs(logs)}", file=sys.stderr)
