"""Threads for tests."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Run the function in another thread; return its result."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(function(*arguments)))
    thread.start()
    thread.join()
    return found[0]


def wait_until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.001)
