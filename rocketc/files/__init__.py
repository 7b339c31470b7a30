"""Files of a store as files: maps, appended files, rows of files, allocation, locks, durable writes, paths and URLs.

Knows: how to map, grow, flush, name, find and delete files, who holds a map, what a full or failing disk says.
Does not know: what the bytes mean. A record or a unit is a number of bytes here.
Others use: `_append_file`, `_file_queue` and `_mapped_file_queue` (files that grow), `_mapped_file` (one to read),
`_guard`, `_checkpoint`, `lock_file`, `durable`, `paths`, `remote`.
"""
