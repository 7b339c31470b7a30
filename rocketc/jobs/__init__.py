"""Work on a store as a whole, most of it while nobody has it open: verify, salvage, rebuild, count, take inventory.

Knows: all files of a store, and what they say about each other.
Does not know: how results are shown. Each job returns a report, and tells its progress to a function.
Others use: `verify`, `salvage` and `rebuild`, whose functions `import rocketc` gives, and the names below; the command
line also `inventory`, `lookup`, `unit_files` and `file_kinds`.
"""

from rocketc.jobs.counts import DIMENSIONS, Count, Group, count
from rocketc.jobs.verify_derived import DerivedReport, Finding

__all__ = ["DIMENSIONS", "Count", "DerivedReport", "Finding", "Group", "count"]
