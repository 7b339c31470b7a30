"""The one way from result codes (status.h) into Python."""


cdef int check(int rc) except -1 nogil      # 0 if rc is RC_OK, otherwise raises
cdef int check_file(int rc, object path) except -1      # the same, and the error names the file
cdef object io_error(int rc, object path)   # the exception for an errno or RC_FILE_CUT
cdef str reason_of(int rc)                  # the name of a record's or file's fault, such as "bad_body_crc"
