"""The scan of a log file in RocketMQ's recovery: where it ends, and why."""

from typing_extensions import Buffer, Self

from rocketc.files._mapped_file import MappedFile
from rocketc.read._log_bytes import LogBytes

class JavaWalk(LogBytes):
    def __new__(cls, source: MappedFile | Buffer, base: int, *, crc: int = 1) -> Self: ...
    @property
    def end(self) -> int: ...
    @property
    def stop(self) -> int: ...
    @property
    def blank(self) -> bool: ...
    @property
    def reason(self) -> str | None: ...
