# cython: language_level=3
"""The answer of success without fields and body: only the number of its request changes.

Source: RocketMQ RemotingCommand.createResponseCommand.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t

from rocketc.broker._send_path cimport put_number, put_text
from rocketc.c.bytes cimport rc_put_i32

from rocketc.remoting.command import Command, Flag

cdef enum:
    ANSWER_BYTES = 256          # the constructor checks it


cdef class EmptyAnswer:
    """Makes the frames of such answers from a template."""

    def __cinit__(self):
        whole = Command(0, {}, opaque=0, flag=Flag.ANSWER).encode()[8:]
        before, self._after_opaque = whole.split(b'"opaque":0')
        self._before_opaque = before + b'"opaque":'
        if len(whole) + 40 > ANSWER_BYTES:
            raise ValueError(f"an answer that does not fit: {whole!r}")

    cdef bytes to(self, int32_t opaque):
        """Return the frame of the answer to a request."""
        cdef uint8_t answer[ANSWER_BYTES]
        cdef uint8_t* p = put_number(put_text(answer + 8, self._before_opaque), opaque)
        p = put_text(p, self._after_opaque)
        rc_put_i32(answer, <int32_t>(p - answer - 4))
        rc_put_i32(answer + 4, <int32_t>(p - answer - 8))
        return PyBytes_FromStringAndSize(<const char*>answer, p - answer)
