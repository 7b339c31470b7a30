"""The formats of an export: their suffixes and their compressions."""

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
_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}  # second suffix of text formats

# The compressions of each format, the default first.
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
        """The suffix of the files in a folder."""
        more = {"gzip": ".gz", "zstd": ".zst"}.get(self.compression, "") if self.is_text else ""
        return f".{self.name}{more}"


def choose_format(path: str, name: str | None, compression: str | None, default: Name | None = None) -> Format:
    """Choose the format of a file from its name.

    name         the format; None: choose it by the suffix of the path
    compression  None: choose it by the suffix of the path, or the default
    default      format for a path without a known suffix

    Raises ValueError if these contradict each other.

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
        raise ValueError(f"unknown format of {path!r}: use one of the suffixes {_KNOWN}, or give the format")
    if packed is not None and chosen not in ("jsonl", "csv"):
        raise ValueError(f"{path!r}: {chosen} is compressed internally; remove the last suffix")
    if compression is None:
        compression = packed or COMPRESSIONS[chosen][0]
    if compression not in COMPRESSIONS[chosen]:
        raise ValueError(f"compression {compression!r} of {chosen}: must be one of {', '.join(COMPRESSIONS[chosen])}")
    if packed is not None and packed != compression:
        raise ValueError(f"{path!r}: the suffix contradicts the compression {compression}")
    return Format(chosen, compression)


def _checked_name(name: str) -> Name:
    for known in COMPRESSIONS:
        if name == known:
            return known
    raise ValueError(f"format {name!r}: must be one of {', '.join(COMPRESSIONS)}")
