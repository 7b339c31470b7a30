"""status.h: result codes of all code that does not raise exceptions."""


cdef extern from "rocketc/status.h" nogil:
    enum:
        RC_OK
        RC_END
        RC_BLANK
        RC_MORE
        RC_BAD_SIZE
        RC_BAD_MAGIC
        RC_TRUNCATED
        RC_BAD_BODY_LENGTH
        RC_BAD_TOPIC_LENGTH
        RC_BAD_PROPERTIES_LENGTH
        RC_BAD_LENGTH
        RC_BAD_BODY_CRC
        RC_MISSING_PROPERTY_CRC
        RC_BAD_PROPERTY_CRC
        RC_BAD_PHYSICAL_OFFSET
        RC_BAD_PROPERTY
        RC_BAD_COMPRESSION
        RC_TOO_LARGE
        RC_BAD_INNER_BATCH
        RC_ZEROED
        RC_BAD_BLANK
        RC_FILE_CUT
        RC_BAD_CHAIN
        RC_BAD_UNIT
        RC_NO_ROOM
        RC_BAD_ARGUMENT
        RC_PROPERTIES_TOO_LONG
        RC_TOPIC_TOO_LONG
        RC_BODY_TOO_LONG
        RC_RECORD_TOO_LONG
        RC_FLUSH_TIMEOUT
        RC_CLOSED
        RC_FAILED
        RC_PAGE_CACHE_BUSY
        RC_NO_FILE
        RC_OUT_OF_ORDER
        RC_UNFIT_TOPIC
        RC_UNKNOWN_TOPIC
        RC_LOCK_LOST
        RC_NOT_A_BATCH
        RC_BAD_QUEUE_ID
        RC_NO_QUEUE_ROOM
