/* Result codes of everything below the rim. 0 is done, > 0 is an errno, < 0 is one of these.
 * A number is never given a second meaning; the texts stand in pyx/rocketc/_status.pyx. */
#ifndef ROCKETC_STATUS_H
#define ROCKETC_STATUS_H

enum {
    RC_OK = 0,

    /* not errors: what a walk over a log meets every day */
    RC_END = -1,   /* zero space: nothing was written here yet */
    RC_BLANK = -2, /* a blank record: go on in the next file */
    RC_MORE = -3,  /* stopped for a reason of the caller's: call again */

    /* a record that is not valid, in the order of the checks */
    RC_BAD_SIZE = -10,
    RC_BAD_MAGIC = -11,
    RC_TRUNCATED = -12,
    RC_BAD_BODY_LENGTH = -13,
    RC_BAD_TOPIC_LENGTH = -14,
    RC_BAD_PROPERTIES_LENGTH = -15,
    RC_BAD_LENGTH = -16,
    RC_BAD_BODY_CRC = -17,
    RC_MISSING_PROPERTY_CRC = -18,
    RC_BAD_PROPERTY_CRC = -19,
    RC_BAD_PHYSICAL_OFFSET = -20,
    RC_BAD_PROPERTY = -21, /* RocketMQ reads it as a number, and it is none */

    /* a valid record whose content can't be had */
    RC_BAD_COMPRESSION = -30,
    RC_TOO_LARGE = -31,
    RC_BAD_INNER_BATCH = -32,

    /* a file, not a record */
    RC_ZEROED = -40,    /* zero bytes with data behind them */
    RC_BAD_BLANK = -41, /* a blank record that does not end where its file ends */
    RC_FILE_CUT = -42,  /* the file became shorter, or unreadable, while it was mapped */
    RC_BAD_CHAIN = -43, /* an index file: a slot or a unit names one that can't be the next of its chain */
    RC_BAD_UNIT = -44,  /* a unit of a consume queue names a record that is not there, or another one */

    /* arguments */
    RC_NO_ROOM = -50, /* the destination is too small; nothing was written */
    RC_BAD_ARGUMENT = -51,
    RC_PROPERTIES_TOO_LONG = -52,
    RC_TOPIC_TOO_LONG = -53,
    RC_BODY_TOO_LONG = -54, /* than maxMessageSize */
    RC_RECORD_TOO_LONG = -55, /* than maxMessageSize and 64 KiB, or than a file */

    /* a store that can't take a message now */
    RC_FLUSH_TIMEOUT = -60, /* it is stored, but not known to be durable */
    RC_CLOSED = -61,
    RC_FAILED = -62,          /* an earlier flush or write failed */
    RC_PAGE_CACHE_BUSY = -63, /* whoever appends has done so for too long */
    RC_NO_FILE = -64,         /* the next file could not be made */
    RC_OUT_OF_ORDER = -65,    /* a queue offset that can't be true */
    RC_UNFIT_TOPIC = -66,     /* a topic that can't be the name of a folder */
    RC_UNKNOWN_TOPIC = -67,   /* a topic without an entry in the table of topics, which is not to get one by a put */
    RC_NOT_A_BATCH = -68, /* the property INNER_NUM, and sys_flag does not say that the record is an inner batch */
};

#endif
