/* The disk format of a message store: every offset, width, magic number and name, defined once.
 * Source: RocketMQ 4.0 to 5.3, MessageDecoder, CommitLog, MessageExtEncoder, MessageSysFlag, MessageConst. */
#ifndef ROCKETC_LAYOUT_H
#define ROCKETC_LAYOUT_H

#include <stdint.h>

/* Magic numbers; as hex they are 0xDAA320A7, 0xDAA320AB and 0xCBD43194. */
enum {
    RC_MAGIC_V1 = -626843481,
    RC_MAGIC_V2 = -626843477,
    RC_MAGIC_BLANK = -875286124,
};

/* A message record up to its born host; later positions depend on the widths of both hosts. */
enum {
    RC_MSG_TOTAL_SIZE_AT = 0,                                      /* i32, this field included */
    RC_MSG_MAGIC_AT = RC_MSG_TOTAL_SIZE_AT + 4,                    /* i32 */
    RC_MSG_BODY_CRC_AT = RC_MSG_MAGIC_AT + 4,                      /* i32, of the stored body */
    RC_MSG_QUEUE_ID_AT = RC_MSG_BODY_CRC_AT + 4,                   /* i32 */
    RC_MSG_FLAG_AT = RC_MSG_QUEUE_ID_AT + 4,                       /* i32 */
    RC_MSG_QUEUE_OFFSET_AT = RC_MSG_FLAG_AT + 4,                   /* i64 */
    RC_MSG_PHYSICAL_OFFSET_AT = RC_MSG_QUEUE_OFFSET_AT + 8,        /* i64 */
    RC_MSG_SYS_FLAG_AT = RC_MSG_PHYSICAL_OFFSET_AT + 8,            /* i32 */
    RC_MSG_BORN_TIMESTAMP_AT = RC_MSG_SYS_FLAG_AT + 4,             /* i64, ms */
    RC_MSG_BORN_HOST_AT = RC_MSG_BORN_TIMESTAMP_AT + 8,            /* 8 or 20 bytes */

    /* after the born host, counted from its end */
    RC_MSG_STORE_TIMESTAMP_PAST = 0,                               /* i64, ms */
    RC_MSG_STORE_HOST_PAST = RC_MSG_STORE_TIMESTAMP_PAST + 8,      /* 8 or 20 bytes */

    /* after the store host, counted from its end */
    RC_MSG_RECONSUME_TIMES_PAST = 0,                               /* i32 */
    RC_MSG_PREPARED_OFFSET_PAST = RC_MSG_RECONSUME_TIMES_PAST + 4, /* i64 */
    RC_MSG_BODY_LENGTH_PAST = RC_MSG_PREPARED_OFFSET_PAST + 8,     /* i32 */
    RC_MSG_BODY_PAST = RC_MSG_BODY_LENGTH_PAST + 4,

    RC_HOST_V4_BYTES = 8,                                          /* 4 of address, i32 port */
    RC_HOST_V6_BYTES = 20,                                         /* 16 of address, i32 port */
    RC_HOST_V6_EXTRA = RC_HOST_V6_BYTES - RC_HOST_V4_BYTES,

    /* with two IPv4 hosts */
    RC_MSG_STORE_TIMESTAMP_V4_AT = RC_MSG_BORN_HOST_AT + RC_HOST_V4_BYTES,
    RC_MSG_BODY_V4_AT = RC_MSG_STORE_TIMESTAMP_V4_AT + RC_MSG_STORE_HOST_PAST + RC_HOST_V4_BYTES + RC_MSG_BODY_PAST,
    RC_MSG_MIN_BYTES = RC_MSG_BODY_V4_AT + 1 + 2,                  /* no body, topic or properties */

    RC_PROPERTIES_LENGTH_BYTES = 2,                                /* i16 */
    RC_PROPERTIES_MAX_BYTES = 32767,
    RC_TOPIC_V1_MAX_BYTES = 127,
    RC_TOPIC_V1_MAX_CHARS = 127,                                   /* a longer topic makes a V2 record */
    RC_TOPIC_V2_MAX_BYTES = 32767,
};

/* A blank record: number of bytes left in the file, magic number; the following bytes are unspecified. */
enum {
    RC_BLANK_BYTES = 8,
};

/* Names of properties. */
#define RC_PROPERTY_KEYS "KEYS"
#define RC_PROPERTY_TAGS "TAGS"
#define RC_PROPERTY_UNIQUE_KEY "UNIQ_KEY"
#define RC_PROPERTY_WAIT "WAIT"
#define RC_PROPERTY_DELAY "DELAY"
#define RC_PROPERTY_CRC32 "__CRC32#"
#define RC_PROPERTY_INNER_NUM "INNER_NUM"
#define RC_PROPERTY_INNER_BASE "INNER_BASE"
#define RC_PROPERTY_INNER_MULTI_DISPATCH "INNER_MULTI_DISPATCH"
#define RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET "INNER_MULTI_QUEUE_OFFSET"
#define RC_PROPERTY_RETRY_TOPIC "RETRY_TOPIC"
#define RC_PROPERTY_ORIGIN_MESSAGE_ID "ORIGIN_MESSAGE_ID"
#define RC_PROPERTY_DLQ_ORIGIN_TOPIC "DLQ_ORIGIN_TOPIC"
#define RC_PROPERTY_DLQ_ORIGIN_MESSAGE_ID "DLQ_ORIGIN_MESSAGE_ID"

/* Topics with a meaning to the store: one by its name, the others by their prefix. */
#define RC_SCHEDULE_TOPIC "SCHEDULE_TOPIC_XXXX" /* delayed messages, until they are due */
#define RC_RETRY_PREFIX "%RETRY%"
#define RC_DLQ_PREFIX "%DLQ%" /* dead letters */
#define RC_LMQ_PREFIX "%LMQ%" /* light queues */
#define RC_SYSTEM_PREFIX "rmq_sys_" /* topics of the broker itself */

/* The property CRC: "__CRC32#" 0x01 ten digits 0x02, at the end of the record. */
enum {
    RC_PROP_CRC_NAME_BYTES = sizeof RC_PROPERTY_CRC32 - 1,
    RC_PROP_CRC_DIGITS = 10,
    RC_PROP_CRC_BYTES = RC_PROP_CRC_NAME_BYTES + 1 + RC_PROP_CRC_DIGITS + 1,
};

/* Separators of the properties string. */
enum {
    RC_NAME_VALUE_SEPARATOR = 1,
    RC_PROPERTY_SEPARATOR = 2,
};

/* Bits of SYSFLAG. */
enum {
    RC_FLAG_COMPRESSED = 0x1,
    RC_FLAG_MULTI_TAGS = 0x2,
    RC_FLAG_TRANSACTION_MASK = 0xC,
    RC_FLAG_PREPARED = 0x4,
    RC_FLAG_COMMIT = 0x8,
    RC_FLAG_ROLLBACK = 0xC,
    RC_FLAG_BORN_HOST_V6 = 0x10,
    RC_FLAG_STORE_HOST_V6 = 0x20,
    RC_FLAG_NEED_UNWRAP = 0x40,
    RC_FLAG_INNER_BATCH = 0x80,
    RC_FLAG_COMPRESSION_MASK = 0x700,
    RC_FLAG_COMPRESSION_SHIFT = 8,
    RC_COMPRESSION_OLD_ZLIB = 0,
    RC_COMPRESSION_LZ4 = 1,
    RC_COMPRESSION_ZSTD = 2,
    RC_COMPRESSION_ZLIB = 3,
};

/* One entry of a client batch or of an inner batch's body. */
enum {
    RC_ENTRY_TOTAL_SIZE_AT = 0,
    RC_ENTRY_MAGIC_AT = RC_ENTRY_TOTAL_SIZE_AT + 4,                /* i32, 0 */
    RC_ENTRY_BODY_CRC_AT = RC_ENTRY_MAGIC_AT + 4,                  /* i32, 0 */
    RC_ENTRY_FLAG_AT = RC_ENTRY_BODY_CRC_AT + 4,
    RC_ENTRY_BODY_LENGTH_AT = RC_ENTRY_FLAG_AT + 4,
    RC_ENTRY_BODY_AT = RC_ENTRY_BODY_LENGTH_AT + 4,
    RC_ENTRY_MIN_BYTES = RC_ENTRY_BODY_AT + RC_PROPERTIES_LENGTH_BYTES,
};

/* The offset message id: store host as stored, then the physical offset; as upper-case hex. */
enum {
    RC_MSG_ID_V4_CHARS = 2 * (RC_HOST_V4_BYTES + 8),
    RC_MSG_ID_V6_CHARS = 2 * (RC_HOST_V6_BYTES + 8),
};

/* A consume queue unit. Unit number n is at logical byte n * RC_CQ_UNIT_BYTES of its queue. */
enum {
    RC_CQ_PHY_OFFSET_AT = 0,                                       /* i64 */
    RC_CQ_SIZE_AT = RC_CQ_PHY_OFFSET_AT + 8,                       /* i32, of the record */
    RC_CQ_TAGS_CODE_AT = RC_CQ_SIZE_AT + 4,                        /* i64, or a delivery time, or an ext address */
    RC_CQ_UNIT_BYTES = RC_CQ_TAGS_CODE_AT + 8,

    RC_CQ_PRE_BLANK_SIZE = 0x7FFFFFFF,                             /* the rest 0: filler before the queue begins */
};

/* A unit of a batch consume queue: one for each inner batch. */
enum {
    RC_BCQ_PHY_OFFSET_AT = 0,                                      /* i64 */
    RC_BCQ_SIZE_AT = RC_BCQ_PHY_OFFSET_AT + 8,                     /* i32, of the record */
    RC_BCQ_TAGS_CODE_AT = RC_BCQ_SIZE_AT + 4,                      /* i64 */
    RC_BCQ_STORE_TIMESTAMP_AT = RC_BCQ_TAGS_CODE_AT + 8,           /* i64, ms */
    RC_BCQ_BASE_OFFSET_AT = RC_BCQ_STORE_TIMESTAMP_AT + 8,         /* i64, queue offset of the first message */
    RC_BCQ_BATCH_SIZE_AT = RC_BCQ_BASE_OFFSET_AT + 8,              /* i16, messages */
    RC_BCQ_COMPACTED_OFFSET_AT = RC_BCQ_BATCH_SIZE_AT + 2,         /* i32, -1 */
    RC_BCQ_RESERVED_AT = RC_BCQ_COMPACTED_OFFSET_AT + 4,           /* i32, 0 */
    RC_BCQ_UNIT_BYTES = RC_BCQ_RESERVED_AT + 4,
};

/* A unit of a consume queue's ext file: these fields, then a bit map. */
enum {
    RC_EXT_SIZE_AT = 0,                                            /* i16, this field and the bit map included */
    RC_EXT_TAGS_CODE_AT = RC_EXT_SIZE_AT + 2,                      /* i64 */
    RC_EXT_STORE_TIMESTAMP_AT = RC_EXT_TAGS_CODE_AT + 8,           /* i64, ms */
    RC_EXT_BIT_MAP_SIZE_AT = RC_EXT_STORE_TIMESTAMP_AT + 8,        /* i16, bytes */
    RC_EXT_BIT_MAP_AT = RC_EXT_BIT_MAP_SIZE_AT + 2,
    RC_EXT_MIN_BYTES = RC_EXT_BIT_MAP_AT,

    RC_EXT_END_SIZE = -1,                                          /* in place of a size: see the next file */
};

/* An index file: a header, the hash slots, the units; unit 0 is never used. */
enum {
    RC_INDEX_BEGIN_TIMESTAMP_AT = 0,                               /* i64, ms */
    RC_INDEX_END_TIMESTAMP_AT = RC_INDEX_BEGIN_TIMESTAMP_AT + 8,   /* i64, ms */
    RC_INDEX_BEGIN_PHY_OFFSET_AT = RC_INDEX_END_TIMESTAMP_AT + 8,  /* i64 */
    RC_INDEX_END_PHY_OFFSET_AT = RC_INDEX_BEGIN_PHY_OFFSET_AT + 8, /* i64 */
    RC_INDEX_SLOT_COUNT_AT = RC_INDEX_END_PHY_OFFSET_AT + 8,       /* i32, slots in use */
    RC_INDEX_COUNT_AT = RC_INDEX_SLOT_COUNT_AT + 4,                /* i32, the next unit's number */
    RC_INDEX_HEADER_BYTES = RC_INDEX_COUNT_AT + 4,

    RC_INDEX_SLOT_BYTES = 4,                                       /* i32, the newest unit of the chain */

    RC_INDEX_KEY_HASH_AT = 0,                                      /* i32, not negative */
    RC_INDEX_PHY_OFFSET_AT = RC_INDEX_KEY_HASH_AT + 4,             /* i64 */
    RC_INDEX_TIME_DIFF_AT = RC_INDEX_PHY_OFFSET_AT + 8,            /* i32, seconds after the begin timestamp */
    RC_INDEX_PREVIOUS_AT = RC_INDEX_TIME_DIFF_AT + 4,              /* i32, the next older unit of the chain, or 0 */
    RC_INDEX_UNIT_BYTES = RC_INDEX_PREVIOUS_AT + 4,

    RC_INDEX_DEFAULT_SLOTS = 5000000,                              /* maxHashSlotNum; not stored in the file */
};

/* StoreCheckpoint: five i64 fields, then zeros. */
enum {
    RC_CHECKPOINT_PHYSIC_TIMESTAMP_AT = 0,
    RC_CHECKPOINT_LOGICS_TIMESTAMP_AT = 8,
    RC_CHECKPOINT_INDEX_TIMESTAMP_AT = 16,
    RC_CHECKPOINT_MASTER_FLUSHED_OFFSET_AT = 24,
    RC_CHECKPOINT_CONFIRM_PHY_OFFSET_AT = 32,
    RC_CHECKPOINT_BYTES = 4096,
};

/* The name of a commit log file is the physical offset of its first byte. */
enum {
    RC_FILE_NAME_DIGITS = 20,
};

#endif
