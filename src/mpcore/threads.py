"""threadpoolctl, where it is installed, lists and limits the threads of mpcore.

``threadpoolctl.threadpool_limits(1)`` then holds for mpcore too. threadpoolctl asks
libraries to come to it, so it is imported with mpcore; that takes a few milliseconds.
"""

from mpcore import ops


def register_controller() -> bool:
    """Make mpcore known to threadpoolctl; return whether it is there to be told."""
    try:
        from threadpoolctl import (  # type: ignore[import-untyped]
            LibController,
            register,
        )
    except ImportError:
        return False

    class Controller(LibController):  # type: ignore[misc]
        """The pool of the process-wide context: one setting for all threads."""

        user_api = "mpcore"
        internal_api = "mpcore"
        filename_prefixes = ("libmpcore",)
        check_symbols = ("mpcore_set_num_threads",)

        def get_num_threads(self) -> int:
            return ops.get_num_threads()

        def set_num_threads(self, num_threads: int) -> None:
            ops.set_num_threads(num_threads)

        def get_version(self) -> str:
            return ops.version()

    register(Controller)
    return True
