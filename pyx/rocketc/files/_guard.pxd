"""Guarded access to a mapped file that another process may cut short."""
from libc.stdint cimport uint8_t

from rocketc.c.vm cimport rc_guard


cdef int install() except -1                # before a scan; does little if the handler is installed
cdef void enter(rc_guard* guard, const uint8_t* base, size_t len, int* cut) noexcept nogil
cdef void enter_writing(rc_guard* guard, const uint8_t* base, size_t len, int* cut) noexcept nogil
cdef void leave(rc_guard* guard) noexcept nogil
