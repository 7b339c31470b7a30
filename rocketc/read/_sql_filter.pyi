"""A compiled SQL92 filter: a program for a stack machine that runs on a property string."""

from typing import Any, Literal

from typing_extensions import Self

OPS: dict[str, int]
NAMES_MAX: int

class SqlFilter:
    """A compiled filter. `rocketc.read.sql.compile_sql()` makes it; immutable, and safe to use from several threads.

    text     the expression
    ignored  the rest of the text: RocketMQ reads one expression and ignores what follows
    """

    @property
    def text(self) -> str: ...
    @property
    def ignored(self) -> str: ...
    def __new__(
        cls,
        text: str,
        steps: list[tuple[str, int, int]],
        constants: list[str | float | bool | None],
        sets: list[list[str]],
        names: list[str],
        ignored: str = "",
    ) -> Self:
        """steps: (name in OPS, left, right), see Op in the source. constants: str, float, int, bool, None."""

    def matches(self, properties: bytes) -> bool:
        """Return whether a message with this property string matches; False also after an error."""

    def verdict(self, properties: bytes) -> Literal["true", "false", "null", "error"]:
        """Return "true", "false", "null" or "error"; a message matches if it is "true"."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> Any:
        """Pickle the program: the process that unpickles it does not need lark."""
