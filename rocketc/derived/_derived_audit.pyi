"""Compare consume queues and index with the log, record by record. Nothing is written."""

from typing import final

from rocketc.derived._dispatcher import Dispatcher
from rocketc.read._log_audit import Audit
from rocketc.read._walk import Walker

WHAT: tuple[str, ...]

@final
class DerivedAudit(Dispatcher):
    records: int
    units: int
    keys: int
    queue_tail: int
    key_tail: int
    upto: int
    def begin(self, start: int, stop: int, *, now: int, queues: bool, index: bool, settled: bool) -> None: ...
    def step(self, walker: Walker) -> bool: ...
    def step_beside(self, audit: Audit) -> bool: ...
    def end(self) -> None: ...
    def counts(self) -> dict[str, int]: ...
    def findings(self) -> list[tuple[str, str | None, int | None, str | None, int, int, int, int]]: ...
