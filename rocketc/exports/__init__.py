"""export(): the messages of a scan as JSON Lines, CSV, Parquet or Arrow, in a file or a partitioned folder.

Knows: formats, compression, row groups, and files that get their name once they are durable.
Does not know: where messages come from. It takes a Scan.
Others use: `export`, whose function `import rocketc` gives, and `Export`; Spark also `folder`, `formats` and `sinks`.
"""

from rocketc.exports.export import Export

__all__ = ["Export"]
