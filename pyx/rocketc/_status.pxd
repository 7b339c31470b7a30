"""The only way from result codes (status.h) to Python exceptions."""
from libc.stdint cimport int64_t


cdef int check(int rc) except -1 nogil      # 0 if rc is RC_OK, otherwise raises
cdef int check_file(int rc, object path) except -1      # the same, but the error names the file
cdef object error_of(int rc, object path, int64_t offset=*, str advice=*)   # the exception for a code
cdef str reason_of(int rc)                  # the name of a fault of a record or file, such as "bad_body_crc"
