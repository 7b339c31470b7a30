"""A compiled SQL92 filter: a program for a stack machine that runs on a property string, without the GIL."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

# What an expression is for one message. After ERROR the evaluation ends. A message matches if it is TRUE.
cdef enum Verdict:
    FALSE_VERDICT = 0
    TRUE_VERDICT = 1
    NULL_VERDICT = 2
    ERROR_VERDICT = 3

ctypedef enum SqlKind:
    NULL_VALUE
    TRUTH               # whole is 0 or 1
    INT                 # Java's int: a text that is compared with it must be one too
    LONG
    DOUBLE
    TEXT                # n bytes of UTF-8 at p, of the property string or of the program

ctypedef struct SqlValue:
    SqlKind kind
    int32_t n
    const uint8_t* p
    int64_t whole
    double real

ctypedef struct SqlStep:
    int32_t op          # an Op, which says what the other two are
    int32_t left
    int32_t right

ctypedef struct SqlName:
    const uint8_t* p    # in the program
    int32_t n
    int16_t next        # next name with the same mark; -1: none

ctypedef struct SqlSet:
    int32_t first       # constants [first, first + count), sorted by length and bytes
    int32_t count

ctypedef struct SqlProgram:
    SqlStep* steps
    SqlValue* constants
    SqlSet* sets
    SqlName* names
    int32_t step_count
    int32_t name_count
    int16_t[64] heads   # first name with a mark; -1: none

cdef Verdict sql_evaluate(const SqlProgram* program, const char* properties, size_t size) noexcept nogil
cdef bint sql_matches(const SqlProgram* program, const char* properties, size_t size) noexcept nogil


cdef class SqlFilter:
    cdef:
        readonly str text       # the expression
        readonly str ignored    # the end of the text that RocketMQ does not read; ""
        SqlProgram program      # valid as long as this object lives; never changes
        bytes _texts            # the bytes of names and constants
        tuple _parts            # the arguments, for pickle
    cdef int _take(self, list steps, list constants, list sets, list names) except -1
    cdef int _take_names(self, list names, dict places) except -1
    cdef int _needs(self, int at, int number, Py_ssize_t constants) except -1
    cdef int _check(self, Py_ssize_t constants, Py_ssize_t sets) except -1
