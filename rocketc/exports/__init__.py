"""export(): write the messages of a scan as JSON Lines, CSV, Parquet or Arrow, to a file or a partitioned folder.

Knows: formats, compression, row groups, and files that are renamed to their final name once they are durable.
Does not know: where messages come from. It takes a Scan.
Others use: `export`, whose function is also in `rocketc`, and `Export`; Spark also `folder`, `formats` and `sinks`.
"""

from rocketc.exports.export import Export

__all__ = ["Export"]
