"""Filters of pulls that test the properties of messages, without Python objects."""

from typing_extensions import Never

from rocketc.read._sql_filter import SqlFilter
from rocketc.store._results import TagFilter

class PropertyFilter(TagFilter):
    def __init__(self, never: Never, /, *args: Never, **kwargs: Never) -> None: ...  # by property_filter()

class RetryFilter(TagFilter):
    def __init__(self, never: Never, /, *args: Never, **kwargs: Never) -> None: ...  # by retry_filter()

def property_filter(sql: SqlFilter) -> PropertyFilter: ...
def retry_filter(filters: dict[str, SqlFilter]) -> RetryFilter: ...
