"""Select the records of a scan by their bytes."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from typing_extensions import Self

from rocketc.read._sql_filter import SqlFilter

class Filter:
    def __new__(
        cls,
        topics: str | re.Pattern[str] | Iterable[str | re.Pattern[str]] | None = None,
        queues: int | Iterable[int] | None = None,
        tags: str | Iterable[str] | None = None,
        keys: str | Iterable[str] | None = None,
        begin: int | datetime | None = None,
        end: int | datetime | None = None,
        *,
        offsets: Mapping[str, Mapping[int | None, tuple[int | None, int | None]]] | None = None,
        unwrap: bool = True,
        sql: str | SqlFilter | None = None,
    ) -> Self: ...
