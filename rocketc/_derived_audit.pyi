"""Consume queues and index, compared with the log record by record; nothing is written."""

from rocketc._dispatch import Dispatcher

WHAT: tuple[str, ...]

class DerivedAudit(Dispatcher):
    records: int
    units: int
    keys: int
    queue_tail: int
    key_tail: int
    def begin(self, start: int, stop: int, *, queues: bool, index: bool) -> None: ...
    def end(self) -> None: ...
    def counts(self) -> dict[str, int]: ...
    def findings(self) -> list[tuple[str, str | None, int | None, str | None, int, int, int, int]]: ...
