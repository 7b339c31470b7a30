"""The messages of one record: its body decompressed, its inner batch opened."""
from libc.stdint cimport int64_t

from rocketc.format._record cimport Record
from rocketc.format._text_table cimport TextTable

# What is not opened, as bits.
cdef enum OpenFlags:
    OPEN_STORED = 8             # do not decompress bodies
    OPEN_WHOLE = 16             # do not open inner batches

cdef int add_messages(
    list out, const Record* r, bytes raw, str file, int how, TextTable tags, int64_t first,
    int64_t* room=*,
) except -1
