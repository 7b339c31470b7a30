"""The formats of an export: what suffix means which, and how each may be compressed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Name = Literal["jsonl", "csv", "parquet", "arrow"]

SUFFIXES: dict[str, Name] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}  # a second suffix, of text

# Of each format: its compressions, the usual one first.
COMPRESSIONS: dict[Name, tuple[str, ...]] = {
    "jsonl": ("none", "gzip", "zstd"),
    "csv": ("none", "gzip", "zstd"),
    "parquet": ("zstd", "snappy", "gzip", "lz4", "none"),
    "arrow": ("none", "zstd", "lz4"),
}
_KNOWN = ", ".join([*SUFFIXES, ".jsonl.gz", ".csv.gz", ".jsonl.zst", ".csv.zst"])


@dataclass(frozen=True)
class Format:
    name: Name
    compression: str

    @property
    def is_text(self) -> bool:
        return self.name in ("jsonl", "csv")

    @property
    def suffix(self) -> str:
        """What the files of a folder end with."""
        more = {"gzip": ".gz", "zstd": ".zst"}.get(self.compression, "") if self.is_text else ""
        return f".{self.name}{more}"


def choose_format(path: str, name: str | None, compression: str | None, default: Name | None = None) -> Format:
    """The format of a file of this name.

    name         says which it is; None: the suffix of the path does
    compression  None: as the suffix says, or what is usual
    default      for a path without a known suffix
    Raises ValueError for what does not fit together.

    >>> choose_format("out.jsonl.gz", None, None)
    Format(name='jsonl', compression='gzip')
    """
    lower = path.lower()
    packed = next((what for suffix, what in _COMPRESSED.items() if lower.endswith(suffix)), None)
    if packed is not None:
        lower = lower.rpartition(".")[0]
    meant = next((known for suffix, known in SUFFIXES.items() if lower.endswith(suffix)), None)
    chosen = _checked_name(name) if name is not None else meant or default
    if chosen is None:
        raise ValueError(f"no format is known by the name {path!r}: {_KNOWN}; or state it")
    if packed is not None and chosen not in ("jsonl", "csv"):
        raise ValueError(f"{path!r}: {chosen} is compressed within, not as a whole; leave the last suffix away")
    if compression is None:
        compression = packed or COMPRESSIONS[chosen][0]
    if compression not in COMPRESSIONS[chosen]:
        raise ValueError(f"compression {compression!r} of {chosen}: {', '.join(COMPRESSIONS[chosen])}")
    if packed is not None and packed != compression:
        raise ValueError(f"{path!r} would be compressed with {compression}, not as its suffix says")
    return Format(chosen, compression)


def _checked_name(name: str) -> Name:
    for known in COMPRESSIONS:
        if name == known:
            return known
    raise ValueError(f"format {name!r}: {', '.join(COMPRESSIONS)}")
