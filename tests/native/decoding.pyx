# cython: language_level=3
"""An extension outside of the package that parses a record without making a Python object of it."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t

from rocketc.c.status cimport RC_OK
from rocketc.format._record cimport Record, parse_record


def body_length(bytes record not None):
    """Return the size of one record's body in bytes, or the code of the error in it."""
    cdef Record r
    cdef int rc = parse_record(<const uint8_t*>PyBytes_AS_STRING(record), <size_t>len(record), &r)
    return r.body_len if rc == RC_OK else rc
