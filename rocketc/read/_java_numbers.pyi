"""Numbers from texts by Java's rules: the conversions of SQL filters."""

def to_int(text: bytes) -> int | None:
    """Return Integer.parseInt(text), or None if it refuses the text."""

def to_long(text: bytes) -> int | None:
    """Return Long.parseLong(text), or None if it refuses the text."""

def to_double(text: bytes) -> float | None:
    """Return Double.parseDouble(text), or None if it refuses the text."""

def compare(a: float, b: float) -> int:
    """Return Double.compare(a, b)."""
