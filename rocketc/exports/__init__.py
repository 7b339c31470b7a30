"""export(): write the messages of a scan as JSON Lines, CSV, Parquet or Arrow, to a file or a partitioned folder.

Knows: formats, compression, row groups, and files that are renamed to their final name once they are durable. Also
archives, which grow with a log or with topics of a cluster: archive_target, cluster_archive and its archive_* modules.
Does not know: where messages of an export come from. It takes a Scan.
Others use: `export`, whose function is also in `rocketc`, and `Export`; Spark also `folder`, `formats`, `sinks` and the
modules of archives; the command line `ClusterArchive`.
"""

from rocketc.exports.export import Export

__all__ = ["Export"]
