"""What a waiting user sees: a bar on a terminal, plain lines elsewhere; on rank 0 only."""

from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["Bar", "Lines", "progress"]

EVERY = 5.0  # seconds between lines


class Bar:
    """A progress bar."""

    def __init__(self, console: Console):
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._progress = Progress(*columns, console=console, transient=True, auto_refresh=False)  # no thread
        self._task = self._progress.add_task("")
        self._progress.start()

    def step(self, done: int, total: int, what: str) -> None:
        """``done`` of ``total`` visits are finished; the next is ``what``."""
        self._progress.update(self._task, completed=done, total=total, description=what, refresh=True)

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()


class Lines:
    """A line every few seconds."""

    def __init__(self, console: Console):
        self._console = console
        self._started = self._last = perf_counter()

    def step(self, done: int, total: int, what: str) -> None:
        """``done`` of ``total`` visits are finished; the next is ``what``."""
        now = perf_counter()
        if done == 0 or now - self._last >= EVERY:
            self._last = now
            self._console.print(f"  {done:4d} of {total} visits, {now - self._started:4.0f} s; now {what}")

    def close(self) -> None:
        """Nothing is left open."""


def progress(console: Console) -> Bar | Lines:
    """A bar if the console is a terminal, else lines."""
    return (Bar if console.is_terminal else Lines)(console)
