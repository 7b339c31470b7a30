"""Message records for Python: the functions that other modules need."""

cdef bytes host_bytes(str what, object host, bint any_port=*)     # ("10.1.2.3", 10911) -> 8 or 20 bytes
cdef bytes properties_bytes(object properties, bint trailing)   # a mapping, stored bytes or None -> the stored string
cdef bytes without_crc_property(bytes properties)
