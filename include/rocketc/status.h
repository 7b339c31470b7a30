/* Result codes of all code that does not raise exceptions. 0 is success, > 0 an errno, < 0 one of these.
 * The meaning of a number never changes. The texts are in pyx/rocketc/_status.pyx. */
#ifndef ROCKETC_STATUS_H
#define ROCKETC_STATUS_H

enum {
    RC_OK = 0,

    /* not errors: normal events while a log is read */
    RC_END = -1,   /* zeros: nothing was written here yet */
    RC_BLANK = -2, /* a blank record: continue in the next file */
    RC_MORE = -3,  /* stopped for a reason of the caller: call again */

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
    RC_BAD_PROPERTY = -21, /* RocketMQ reads the property as a number, but it is not one */

    /* a valid record whose content can't be read */
    RC_BAD_COMPRESSION = -30,
    RC_TOO_LARGE = -31,
    RC_BAD_INNER_BATCH = -32,

    /* a fault of a file, not of a record */
    RC_ZEROED = -40,    /* zeros followed by data */
    RC_BAD_BLANK = -41, /* a blank record that does not end where its file ends */
    RC_FILE_CUT = -42,  /* the file became shorter, or unreadable, while it was mapped */
    RC_BAD_CHAIN = -43, /* an index file: a slot or a unit points to one that can't be the next of its chain */
    RC_BAD_UNIT = -44,  /* a unit of a consume queue points to a missing record, or to another one */

    /* arguments */
    RC_NO_ROOM = -50, /* the destination is too small; nothing was written */
    RC_BAD_ARGUMENT = -51,
    RC_PROPERTIES_TOO_LONG = -52,
    RC_TOPIC_TOO_LONG = -53,
    RC_BODY_TOO_LONG = -54, /* than maxMessageSize */
    RC_RECORD_TOO_LONG = -55, /* than maxMessageSize and 64 KiB, or than a file */

    /* the store can't take a message now */
    RC_FLUSH_TIMEOUT = -60, /* the message is stored, but not known to be durable */
    RC_CLOSED = -61,
    RC_FAILED = -62,          /* an earlier flush or write failed */
    RC_PAGE_CACHE_BUSY = -63, /* a put has held the lock for too long */
    RC_NO_FILE = -64,         /* the next file could not be created */
    RC_OUT_OF_ORDER = -65,    /* an impossible queue offset */
    RC_UNFIT_TOPIC = -66,     /* a topic that can't be the name of a folder */
    RC_UNKNOWN_TOPIC = -67,   /* a topic that is not in the table of topics, and that a put may not add */
    RC_NOT_A_BATCH = -68,     /* it has the property INNER_NUM, but sys_flag does not mark an inner batch */
    RC_LOCK_LOST = -69, /* the lock file or a folder of the log is gone or was replaced: another process may write */
    RC_BAD_QUEUE_ID = -70,  /* no queue can have this id: it is negative */
    RC_NO_QUEUE_ROOM = -71, /* the file system of the consume queues is full */
};

#endif
