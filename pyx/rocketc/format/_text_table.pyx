# cython: language_level=3
"""A table from texts to numbers, searched by bytes without the GIL."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy


cdef inline uint64_t load8(const uint8_t* p, int n) noexcept nogil:
    """Map up to 8 bytes to a number, one to one for each length, without a memcpy of variable length."""
    cdef uint64_t v = 0
    cdef uint32_t low, high
    if n >= 8:
        memcpy(&v, p, 8)
    elif n >= 4:
        memcpy(&low, p, 4)
        memcpy(&high, p + n - 4, 4)
        v = <uint64_t>high << 32 | low
    elif n > 0:
        v = <uint64_t>p[0] << 16 | <uint64_t>p[n >> 1] << 8 | p[n - 1]
    return v


cdef inline size_t text_hash(const uint8_t* p, int n) noexcept nogil:
    cdef uint64_t h = load8(p, n) ^ (<uint64_t>n << 56)
    if n > 8:
        h ^= load8(p + n - 8, 8) * 0x9E3779B97F4A7C15u
    h *= 0xFF51AFD7ED558CCDu
    return <size_t>(h ^ (h >> 32))


cdef class TextTable:
    """A table from texts to verdicts, with open addressing. Texts are never removed."""

    def __cinit__(self):
        self._mask = 15
        self._slots = <Judged*>calloc(self._mask + 1, sizeof(Judged))
        if self._slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef size_t i
        if self._slots != NULL:
            for i in range(self._mask + 1):
                free(self._slots[i].p)
        free(self._slots)

    cdef Judged* _slot(self, const uint8_t* p, int n) noexcept nogil:
        cdef size_t i = text_hash(p, n) & self._mask
        while self._slots[i].p != NULL and (self._slots[i].n != n or memcmp(self._slots[i].p, p, <size_t>n) != 0):
            i = (i + 1) & self._mask
        return &self._slots[i]

    cdef int get(self, const uint8_t* p, int n) noexcept nogil:
        """Return the verdict for the n bytes at p, or UNKNOWN."""
        cdef Judged* slot = self._slot(p, n)
        return slot.verdict if slot.p != NULL else UNKNOWN

    cdef int put(self, const uint8_t* p, int n, int verdict) except -1:
        """Store a verdict; the bytes are copied."""
        cdef Judged* slot
        cdef Judged* old = self._slots
        cdef size_t i, room = self._mask + 1
        if 2 * (self.count + 1) > room:
            self._slots = <Judged*>calloc(2 * room, sizeof(Judged))
            if self._slots == NULL:
                self._slots = old
                raise MemoryError
            self._mask = 2 * room - 1
            for i in range(room):
                if old[i].p != NULL:
                    self._slot(old[i].p, old[i].n)[0] = old[i]
            free(old)
        slot = self._slot(p, n)
        if slot.p == NULL:
            slot.p = <uint8_t*>malloc(<size_t>n + 1)
            if slot.p == NULL:
                raise MemoryError
            memcpy(slot.p, p, <size_t>n)
            slot.n = n
            self.count += 1
        slot.verdict = verdict
        return 0
