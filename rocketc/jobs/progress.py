"""The interface by which a job reports its progress, if only the job knows the total."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

# progress(what, total) is a context manager for the time of the work; call the function it returns with the bytes done.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def no_progress(what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    """A Progress that ignores its reports.

    >>> with no_progress("reading", 100) as report:
    ...     report(50)
    """
    return nullcontext(lambda done: None)
