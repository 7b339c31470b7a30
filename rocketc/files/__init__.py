"""The files of a store: maps, append files, lists of files, allocation, locks, durable writes, paths and URLs.

Knows: how to map, grow, flush, name, find and delete files, the holds of a map, and the errors of a full or
failing disk.
Does not know: the meaning of the bytes. Here, a record or a unit is a number of bytes.
Others use: `_append_file`, `_file_queue` and `_mapped_file_queue` (files that grow), `_mapped_file` (one to read),
`_guard`, `_checkpoint`, `lock_file`, `durable`, `paths`, `remote`.
"""
