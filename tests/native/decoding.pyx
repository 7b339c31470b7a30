# cython: language_level=3
"""A caller from outside of the package: it parses a record without making a Python object of it."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t

from rocketc.c.status cimport RC_OK
from rocketc.format._record cimport Record, parse_record


def body_length(bytes record not None):
    """Bytes of the body of one record, or the code that says what is wrong with it."""
    cdef Record r
    cdef int rc = parse_record(<const uint8_t*>PyBytes_AS_STRING(record), <size_t>len(record), &r)
    return r.body_len if rc == RC_OK else rc
