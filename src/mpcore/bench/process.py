"""The near side of a worker: starts the process and asks it things."""

import json
import subprocess
import sys
import tempfile
from typing import IO, Any, cast

from mpcore.bench import peers


class WorkerError(RuntimeError):
    """A worker died, or could not do what it should be able to do."""


class Process:
    """A worker process; see `worker` for what can be asked.

    Parameters
    ----------
    name : str
        One of `peers.PEERS`.
    threads : int
        How many it may use.
    """

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.threads = threads
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mpcore.bench.worker", name, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=peers.environment(threads),
            text=True,
        )
        self._requests = cast(IO[str], self._process.stdin)
        self._replies = cast(IO[str], self._process.stdout)

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def send(self, do: str, **arguments: Any) -> None:
        """Ask something; `receive` waits for the answer."""
        try:
            self._requests.write(json.dumps({"do": do, **arguments}) + "\n")
            self._requests.flush()
        except BrokenPipeError:
            self._raise_dead()

    def receive(self) -> dict[str, Any]:
        """Return the answer.

        Raises
        ------
        WorkerError
            If the process ended, or the answer is an error.
        """
        line = self._replies.readline()
        if not line:
            self._raise_dead()
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise WorkerError(f"{self.name}: {reply['error']}")
        return reply

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Ask and wait."""
        self.send(do, **arguments)
        return self.receive()

    def end(self) -> None:
        """Let the process end when it has answered."""
        try:
            self._requests.close()
        except BrokenPipeError:
            pass  # It ended by itself.

    def close(self) -> None:
        """End the process and wait for it."""
        self.end()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._replies.close()
        self._errors.close()

    def _raise_dead(self) -> None:
        code = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().strip().splitlines()[-3:]
        raise WorkerError(
            f"{self.name}: the process ended with code {code}: {' | '.join(last)}"
        )
