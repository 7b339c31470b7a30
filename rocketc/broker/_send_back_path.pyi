"""Send-backs, from the frame to the copy of the message in the log and the answer."""

from collections.abc import Callable, Iterable
from typing import Protocol

from rocketc.broker._send_path import SendPath
from rocketc.remoting._connection import FastPath
from rocketc.store._gets import Getting

class _Table(Protocol):
    @property
    def generation(self) -> int: ...

class CheckedBack:
    def __init__(self, group: str, topic: str, queues: int, most: int, levels: int) -> None: ...

class SendBackPath(FastPath):
    @property
    def taken(self) -> int: ...
    def __init__(
        self,
        sends: SendPath,
        store: Getting,
        tables: Iterable[_Table],
        check: Callable[[str], CheckedBack | None],
        choose: Callable[[int], int],
        stored: Callable[[str, str, int], object],
        special: Iterable[str],
        names: Iterable[str],
    ) -> None: ...
    def forget(self) -> None: ...
