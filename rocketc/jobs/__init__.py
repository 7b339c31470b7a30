"""Work on a whole store, mostly one that no process has open: verify, salvage, rebuild, count, take inventory.

Knows: all files of a store and the relations between them.
Does not know: how results are shown. Each job returns a report, and reports its progress to a function.
Others use: `verify`, `salvage` and `rebuild`, whose functions are also in `rocketc`, and the names below. The command
line also uses `inventory`, `lookup`, `unit_files` and `file_kinds`.
"""

from rocketc.jobs.counts import DIMENSIONS, Count, Group, count
from rocketc.jobs.verify_derived import DerivedReport, Finding

__all__ = ["DIMENSIONS", "Count", "DerivedReport", "Finding", "Group", "count"]
