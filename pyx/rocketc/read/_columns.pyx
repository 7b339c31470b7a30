# cython: language_level=3
"""Convert records to Arrow buffers, column by column for a block of records; each value is copied once."""
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from rocketc.c.bytes cimport rc_get_i32, rc_get_i64
from rocketc.c.layout cimport (
    RC_HOST_V4_BYTES, RC_HOST_V6_EXTRA, RC_MSG_BODY_CRC_AT, RC_MSG_BORN_HOST_AT, RC_MSG_BORN_TIMESTAMP_AT,
    RC_MSG_ID_V6_CHARS, RC_MSG_PHYSICAL_OFFSET_AT, RC_MSG_PREPARED_OFFSET_PAST, RC_MSG_QUEUE_ID_AT,
    RC_MSG_RECONSUME_TIMES_PAST, RC_MSG_STORE_HOST_PAST, RC_MSG_STORE_TIMESTAMP_PAST, RC_PROPERTIES_MAX_BYTES,
    RC_PROPERTY_KEYS, RC_PROPERTY_TAGS,
)
from rocketc.c.properties cimport RC_PAIRS_MAX, RC_PAIRS_SEEN, rc_drop_duplicates, rc_pair, rc_split_properties
from rocketc.c.shape cimport RC_SHAPES, rc_shape, rc_shape_fits, rc_shape_keep
from rocketc.c.status cimport RC_MORE, RC_OK
from rocketc.c.text cimport (
    RC_COPY_SLACK, RC_HOST_TEXT_MAX, rc_copy_short, rc_copy_slack, rc_copy_stream, rc_hex, rc_host_text,
)
from rocketc.c.utf8 cimport rc_is_ascii, rc_utf8_repair, rc_utf8_valid
from rocketc.format._record cimport Record, Slice, born_host_len, store_host_len
from rocketc.read._column_buffers cimport (
    BatchBuffers, ColumnBuffers, KIND_BINARY, KIND_INT32, KIND_INT64, KIND_TIMESTAMP, Kind, MAP_KEYS, MAP_VALUES,
    kind_of, reserve,
)
from rocketc.read._message cimport (
    COLUMNS, COL_BODY, COL_BODY_CRC, COL_BORN_HOST, COL_BROKER_NAME, COL_FILE, COL_FLAG, COL_KEYS, COL_MSG_ID,
    COL_PHYSICAL_OFFSET, COL_PROPERTIES, COL_QUEUE_ID, COL_QUEUE_OFFSET, COL_RECONSUME_TIMES, COL_STORE_HOST,
    COL_STORE_TIMESTAMP, COL_SYS_FLAG, COL_TAGS, COL_TOPIC,
)

cdef extern from "<errno.h>" nogil:
    enum:
        ENOMEM

cdef enum:
    REPAIRED_BYTES = 3 * RC_PROPERTIES_MAX_BYTES
    US_PER_MS = 1000

cdef int64_t TIMESTAMP_LIMIT = INT64_MAX // US_PER_MS       # ms; larger values do not fit into the column


cdef inline int32_t* offsets_of(BatchBuffers* rows, int column) noexcept nogil:
    return <int32_t*>rows.col[column].offsets.p


cdef inline void set_bit(uint8_t* bits, int64_t row, bint on) noexcept nogil:
    cdef uint8_t mask = <uint8_t>(1 << (row & 7))
    if on:
        bits[row >> 3] |= mask
    else:
        bits[row >> 3] &= <uint8_t>~mask


cdef int room_for_nulls(BatchBuffers* rows, int column, int64_t more) noexcept nogil:
    """Make room for a validity bit per row for the existing rows and `more`; bits before the first null are set."""
    cdef ColumnBuffers* c = &rows.col[column]
    cdef int rc = reserve(&c.valid, <size_t>(rows.rows + more + 7) // 8)
    if rc == RC_OK and c.nulls == 0 and rows.rows + more > 0:      # memset() must not get NULL
        memset(c.valid.p, 0xFF, <size_t>(rows.rows + more + 7) // 8)
    return rc


cdef int int32s(BatchBuffers* rows, int column, const Record* records, int count) noexcept nogil:
    cdef ColumnBuffers* c = &rows.col[column]
    cdef int rc = reserve(&c.values, <size_t>(rows.rows + count) * sizeof(int32_t))
    cdef int32_t* out
    cdef int i
    if rc != RC_OK:
        return rc
    out = <int32_t*>c.values.p + rows.rows
    if column == COL_QUEUE_ID:
        for i in range(count):
            out[i] = rc_get_i32(records[i].at + RC_MSG_QUEUE_ID_AT)
    elif column == COL_FLAG:
        for i in range(count):
            out[i] = records[i].flag
    elif column == COL_SYS_FLAG:
        for i in range(count):
            out[i] = records[i].sys_flag
    elif column == COL_RECONSUME_TIMES:
        for i in range(count):
            out[i] = rc_get_i32(behind_hosts(&records[i]) + RC_MSG_RECONSUME_TIMES_PAST)
    elif column == COL_BODY_CRC:
        for i in range(count):
            out[i] = rc_get_i32(records[i].at + RC_MSG_BODY_CRC_AT)
    else:
        for i in range(count):
            out[i] = records[i].size
    return RC_OK


cdef inline const uint8_t* behind_hosts(const Record* r) noexcept nogil:
    return r.tail + RC_MSG_STORE_HOST_PAST + store_host_len(r.sys_flag)


cdef int int64s(BatchBuffers* rows, int column, const Record* records, int count) noexcept nogil:
    cdef ColumnBuffers* c = &rows.col[column]
    cdef int rc = reserve(&c.values, <size_t>(rows.rows + count) * sizeof(int64_t))
    cdef int64_t* out
    cdef int i
    if rc != RC_OK:
        return rc
    out = <int64_t*>c.values.p + rows.rows
    if column == COL_QUEUE_OFFSET:
        for i in range(count):
            out[i] = records[i].queue_offset
    elif column == COL_PHYSICAL_OFFSET:
        for i in range(count):
            out[i] = records[i].phy_offset
    else:
        for i in range(count):
            out[i] = rc_get_i64(behind_hosts(&records[i]) + RC_MSG_PREPARED_OFFSET_PAST)
    return RC_OK


cdef int timestamps(BatchBuffers* rows, int column, const Record* records, int count) noexcept nogil:
    """Convert ms to us; values that do not fit become null."""
    cdef ColumnBuffers* c = &rows.col[column]
    cdef int rc = reserve(&c.values, <size_t>(rows.rows + count) * sizeof(int64_t))
    cdef int64_t* out
    cdef int64_t ms
    cdef int i
    if rc == RC_OK and c.nulls > 0:
        rc = room_for_nulls(rows, column, count)
    if rc != RC_OK:
        return rc
    out = <int64_t*>c.values.p + rows.rows
    for i in range(count):
        if column == COL_STORE_TIMESTAMP:
            ms = rc_get_i64(records[i].tail + RC_MSG_STORE_TIMESTAMP_PAST)
        else:
            ms = rc_get_i64(records[i].at + RC_MSG_BORN_TIMESTAMP_AT)
        if -TIMESTAMP_LIMIT <= ms <= TIMESTAMP_LIMIT:
            out[i] = ms * US_PER_MS
            if c.nulls > 0:
                set_bit(c.valid.p, rows.rows + i, True)
        else:
            out[i] = 0
            if c.nulls == 0:
                rc = room_for_nulls(rows, column, count)
                if rc != RC_OK:
                    return rc
            c.nulls += 1
            set_bit(c.valid.p, rows.rows + i, False)
    return RC_OK


cdef int text_room(BatchBuffers* rows, int column, int64_t bytes, int64_t count) noexcept nogil:
    """Make room for `count` more texts of `bytes` in total; return RC_MORE if the offsets would exceed 2^31."""
    cdef ColumnBuffers* c = &rows.col[column]
    cdef int64_t at = rows.entries if column >= COLUMNS else rows.rows
    cdef int64_t used = offsets_of(rows, column)[at]
    cdef int rc
    if used + bytes + RC_COPY_SLACK > INT32_MAX:
        return RC_MORE
    rc = reserve(&c.values, <size_t>(used + bytes + RC_COPY_SLACK))
    if rc != RC_OK:
        return rc
    return reserve(&c.offsets, <size_t>(at + count + 1) * sizeof(int32_t))


# The destination of the texts of a block.
ctypedef struct TextOut:
    uint8_t* values             # bytes of all texts of the column
    int32_t* offsets            # [0] is `used` of the first new row; the caller sets [1]
    int32_t used                # bytes of values already written


cdef int begin_texts(BatchBuffers* rows, int column, int64_t bytes, int count, TextOut* out) noexcept nogil:
    """Make room for the texts of `count` more rows, `bytes` in total; returns the status of text_room()."""
    cdef int rc = text_room(rows, column, bytes, count)
    if rc == RC_OK:
        out.values = rows.col[column].values.p
        out.offsets = offsets_of(rows, column) + rows.rows
        out.used = out.offsets[0]
    return rc


cdef inline int32_t put_text(
    uint8_t* values, int32_t used, const uint8_t* p, int n, const uint8_t* end, bint valid
) noexcept nogil:
    """Add one text at `used`, repaired to valid UTF-8 if needed; return the position of its end.

    The caller has made room: 3 * n bytes for an invalid text.
    """
    if valid:
        rc_copy_short(values + used, p, <size_t>n, end)
        return used + n
    return used + <int32_t>rc_utf8_repair(values + used, p, <size_t>n)


cdef int topics(BatchBuffers* rows, const Record* records, int count, const uint8_t* end) noexcept nogil:
    cdef TextOut out
    cdef int64_t need = 0
    cdef bint valid
    cdef int i, rc
    for i in range(count):
        need += records[i].topic_len
    rc = begin_texts(rows, COL_TOPIC, 3 * need, count, &out)
    if rc != RC_OK:
        return rc
    for i in range(count):
        valid = rc_utf8_valid(records[i].topic, <size_t>records[i].topic_len)
        out.used = put_text(out.values, out.used, records[i].topic, records[i].topic_len, end, valid)
        out.offsets[i + 1] = out.used
    return RC_OK


cdef int bodies(BatchBuffers* rows, const Record* records, int count) noexcept nogil:
    cdef TextOut out
    cdef int64_t need = 0
    cdef int i, rc
    for i in range(count):
        need += records[i].body_len
    rc = begin_texts(rows, COL_BODY, need, count, &out)
    if rc != RC_OK:
        return rc
    for i in range(count):
        rc_copy_stream(out.values + out.used, records[i].body, <size_t>records[i].body_len)
        out.used += records[i].body_len
        out.offsets[i + 1] = out.used
    return RC_OK


cdef inline bint same_host(const uint8_t* a, int a_width, const uint8_t* b, int b_width) noexcept nogil:
    if a_width != b_width or rc_get_i64(a) != rc_get_i64(b):
        return False
    return a_width == RC_HOST_V4_BYTES or memcmp(a + RC_HOST_V4_BYTES, b + RC_HOST_V4_BYTES, RC_HOST_V6_EXTRA) == 0


cdef int hosts(BatchBuffers* rows, int column, const Record* records, int count) noexcept nogil:
    """Add bornHost or storeHost. Adjacent records mostly have the same host, so its text is reused."""
    cdef TextOut out
    cdef int rc = begin_texts(rows, column, <int64_t>count * RC_HOST_TEXT_MAX, count, &out)
    cdef uint8_t text[RC_HOST_TEXT_MAX]
    cdef const uint8_t* last = NULL
    cdef const uint8_t* host
    cdef int i, width, last_width = 0, n = 0
    if rc != RC_OK:
        return rc
    for i in range(count):
        if column == COL_BORN_HOST:
            host = records[i].at + RC_MSG_BORN_HOST_AT
            width = born_host_len(records[i].sys_flag)
        else:
            host = records[i].tail + RC_MSG_STORE_HOST_PAST
            width = store_host_len(records[i].sys_flag)
        if last == NULL or not same_host(host, width, last, last_width):
            n = rc_host_text(text, host, width)
            last = host
            last_width = width
        rc_copy_short(out.values + out.used, text, <size_t>n, text + RC_HOST_TEXT_MAX)
        out.used += n
        out.offsets[i + 1] = out.used
    return RC_OK


cdef int msg_ids(BatchBuffers* rows, const Record* records, int count) noexcept nogil:
    """Add the store host and physical offset in hex; the host's part is reused for adjacent records."""
    cdef TextOut out
    cdef int rc = begin_texts(rows, COL_MSG_ID, <int64_t>count * RC_MSG_ID_V6_CHARS, count, &out)
    cdef uint8_t text[RC_HOST_TEXT_MAX]
    cdef const uint8_t* last = NULL
    cdef const uint8_t* host
    cdef int i, width, last_width = 0
    if rc != RC_OK:
        return rc
    for i in range(count):
        host = records[i].tail + RC_MSG_STORE_HOST_PAST
        width = store_host_len(records[i].sys_flag)
        if last == NULL or not same_host(host, width, last, last_width):
            rc_hex(text, host, <size_t>width)
            last = host
            last_width = width
        rc_copy_short(out.values + out.used, text, <size_t>(2 * width), text + RC_HOST_TEXT_MAX)
        out.used += 2 * width
        rc_hex(out.values + out.used, records[i].at + RC_MSG_PHYSICAL_OFFSET_AT, 8)
        out.used += 16
        out.offsets[i + 1] = out.used
    return RC_OK


cdef int origins(
    BatchBuffers* rows, int column, const Record* records, int count, const Origin* origin
) noexcept nogil:
    """Add brokerName or file; if there is none, null for all rows."""
    cdef TextOut out
    cdef ColumnBuffers* c = &rows.col[column]
    cdef const Slice* brokers = origin.brokers if column == COL_BROKER_NAME else NULL
    cdef const Slice* name = &origin.file
    cdef bint is_there = brokers != NULL or (column == COL_FILE and name.at != NULL)
    cdef int64_t need = 0
    cdef int i, rc
    if brokers != NULL:
        for i in range(count):
            need += brokers[records[i].broker].len
    elif is_there:
        need = <int64_t>count * name.len
    rc = begin_texts(rows, column, need, count, &out)
    if rc == RC_OK and (not is_there or c.nulls > 0):
        rc = room_for_nulls(rows, column, count)
    if rc != RC_OK:
        return rc
    for i in range(count):
        if c.nulls > 0 or not is_there:
            set_bit(c.valid.p, rows.rows + i, is_there)
        if is_there:
            if brokers != NULL:
                name = &brokers[records[i].broker]
            memcpy(out.values + out.used, name.at, <size_t>name.len)
            out.used += name.len
        else:
            c.nulls += 1
        out.offsets[i + 1] = out.used
    return RC_OK


cdef inline uint32_t name4(const uint8_t* p, const rc_pair* pair) noexcept nogil:
    """Return a name of four letters as a number; 0 for all other names."""
    cdef uint32_t v
    if pair.name_end - pair.name != sizeof(v):
        return 0
    memcpy(&v, p + pair.name, sizeof(v))
    return v


cdef inline int put_one(
    BatchBuffers* rows, int column, int64_t row, const uint8_t* p, const rc_pair* pair, const uint8_t* end
) noexcept nogil:
    """Add keys or tags of one row: the pair's value, or null if pair is NULL."""
    cdef ColumnBuffers* c = &rows.col[column]
    cdef int32_t* offsets = <int32_t*>c.offsets.p + row
    if pair != NULL:
        offsets[1] = put_text(c.values.p, offsets[0], p + pair.value, pair.value_end - pair.value, end, True)
        set_bit(c.valid.p, row, True)
    else:
        offsets[1] = offsets[0]
        set_bit(c.valid.p, row, False)
        c.nulls += 1
    return 0


cdef int properties_room(BatchBuffers* rows, int64_t need, int count) noexcept nogil:
    """Make room for keys, tags and maps of `count` rows with `need` property bytes, even if all become U+FFFD."""
    cdef int rc = RC_OK
    need *= 3
    if rows.selected.bits >> COL_KEYS & 1:
        rc = text_room(rows, COL_KEYS, need, count)
        if rc == RC_OK:
            rc = reserve(&rows.col[COL_KEYS].valid, <size_t>(rows.rows + count + 7) // 8)
    if rc == RC_OK and rows.selected.bits >> COL_TAGS & 1:
        rc = text_room(rows, COL_TAGS, need, count)
        if rc == RC_OK:
            rc = reserve(&rows.col[COL_TAGS].valid, <size_t>(rows.rows + count + 7) // 8)
    if rc == RC_OK and rows.selected.bits >> COL_PROPERTIES & 1:
        rc = text_room(rows, MAP_KEYS, need, need // 4 + count)
        if rc == RC_OK:
            rc = text_room(rows, MAP_VALUES, need, need // 4 + count)
        if rc == RC_OK:
            rc = reserve(&rows.col[COL_PROPERTIES].offsets, <size_t>(rows.rows + count + 1) * sizeof(int32_t))
    return rc


cdef int properties(BatchBuffers* rows, const Record* records, int count, const uint8_t* end) noexcept nogil:
    """Add keys, tags and the map, as selected, in one pass over each property string.

    As in Java, a string that is not UTF-8 is repaired before it is split: names that become equal are one name.
    """
    cdef rc_pair pairs[RC_PAIRS_MAX]
    cdef uint16_t seen[RC_PAIRS_SEEN]
    cdef rc_shape shapes[RC_SHAPES]
    cdef rc_shape* shape
    cdef bint slack, valid
    cdef bint keys = rows.selected.bits >> COL_KEYS & 1, tags = rows.selected.bits >> COL_TAGS & 1
    cdef bint whole = rows.selected.bits >> COL_PROPERTIES & 1
    cdef int64_t need = 0
    cdef const rc_pair* key
    cdef const rc_pair* tag
    cdef const uint8_t* p
    cdef const uint8_t* stop
    cdef uint8_t* repaired = NULL
    cdef int i, n, size, rc
    for i in range(count):
        need += records[i].props_len
    rc = properties_room(rows, need, count)
    if rc != RC_OK:
        return rc
    for i in range(RC_SHAPES):
        shapes[i].len = -1
    for i in range(count):
        p = records[i].props
        size = records[i].props_len
        stop = max(end, p + size)
        shape = &shapes[size % RC_SHAPES]
        slack = stop - p >= size + RC_COPY_SLACK
        if slack and rc_shape_fits(shape, p, size, stop):
            if whole:
                put_like(rows, rows.rows + i, p, shape)
            key = &shape.pairs[shape.keys] if shape.keys >= 0 else NULL
            tag = &shape.pairs[shape.tags] if shape.tags >= 0 else NULL
        else:
            valid = rc_utf8_valid(p, <size_t>size)
            if not valid:
                if repaired == NULL:
                    repaired = <uint8_t*>malloc(REPAIRED_BYTES)
                if repaired == NULL:
                    return ENOMEM
                size = <int>rc_utf8_repair(repaired, p, <size_t>size)
                p = repaired
                stop = repaired + size
                slack = False
            n = rc_split_properties(p, size, stop, pairs)
            n = rc_drop_duplicates(p, pairs, n, seen)
            rc_shape_keep(shape, p, size, pairs, n, valid and rc_is_ascii(p, <size_t>size))
            if whole:
                put_map(rows, rows.rows + i, p, pairs, n, stop, slack)
            key = find_name4(p, pairs, n, RC_PROPERTY_KEYS)
            tag = find_name4(p, pairs, n, RC_PROPERTY_TAGS)
        if keys:
            put_one(rows, COL_KEYS, rows.rows + i, p, key, stop)
        if tags:
            put_one(rows, COL_TAGS, rows.rows + i, p, tag, stop)
    free(repaired)
    return RC_OK


cdef inline const rc_pair* find_name4(const uint8_t* p, const rc_pair* pairs, int n, const char* name) noexcept nogil:
    """Return the pair with a name of four letters, or NULL."""
    cdef uint32_t wanted
    cdef int i
    memcpy(&wanted, name, sizeof(wanted))
    for i in range(n):
        if name4(p, &pairs[i]) == wanted:
            return &pairs[i]
    return NULL


cdef inline void put_map(
    BatchBuffers* rows, int64_t row, const uint8_t* p, const rc_pair* pairs, int n, const uint8_t* end, bint slack
) noexcept nogil:
    """Add the map of one row. slack: whether RC_COPY_SLACK bytes after the string can be read."""
    cdef uint8_t* names = rows.col[MAP_KEYS].values.p
    cdef uint8_t* values = rows.col[MAP_VALUES].values.p
    cdef int32_t* name_offsets = offsets_of(rows, MAP_KEYS) + rows.entries
    cdef int32_t* value_offsets = offsets_of(rows, MAP_VALUES) + rows.entries
    cdef int32_t name_used = name_offsets[0], value_used = value_offsets[0]
    cdef const rc_pair* pair = pairs
    cdef int i
    if slack:
        for i in range(1, n + 1):
            rc_copy_slack(names + name_used, p + pair.name, <size_t>(pair.name_end - pair.name))
            rc_copy_slack(values + value_used, p + pair.value, <size_t>(pair.value_end - pair.value))
            name_used += pair.name_end - pair.name
            value_used += pair.value_end - pair.value
            name_offsets[i] = name_used
            value_offsets[i] = value_used
            pair += 1
    else:
        for i in range(1, n + 1):
            name_used = put_text(names, name_used, p + pair.name, pair.name_end - pair.name, end, True)
            value_used = put_text(values, value_used, p + pair.value, pair.value_end - pair.value, end, True)
            name_offsets[i] = name_used
            value_offsets[i] = value_used
            pair += 1
    rows.entries += n
    offsets_of(rows, COL_PROPERTIES)[row + 1] = <int32_t>rows.entries


cdef inline void put_like(BatchBuffers* rows, int64_t row, const uint8_t* p, const rc_shape* shape) noexcept nogil:
    """Add the map of one row with the names and lengths in `shape`; RC_COPY_SLACK bytes after the string exist."""
    cdef uint8_t* values = rows.col[MAP_VALUES].values.p
    cdef int32_t* name_offsets = offsets_of(rows, MAP_KEYS) + rows.entries
    cdef int32_t* value_offsets = offsets_of(rows, MAP_VALUES) + rows.entries
    cdef int32_t name_used = name_offsets[0], value_used = value_offsets[0], size
    cdef const rc_pair* pair
    cdef int i, n = shape.count
    rc_copy_slack(rows.col[MAP_KEYS].values.p + name_used, shape.names, <size_t>shape.names_len)
    for i in range(n):
        name_offsets[i + 1] = name_used + shape.name_ends[i]
    for i in range(n):
        pair = &shape.pairs[i]
        size = pair.value_end - pair.value
        rc_copy_slack(values + value_used, p + pair.value, <size_t>size)
        value_used += size
        value_offsets[i + 1] = value_used
    rows.entries += n
    offsets_of(rows, COL_PROPERTIES)[row + 1] = <int32_t>rows.entries


cdef int append(
    BatchBuffers* rows, const Record* records, int count, const uint8_t* end, const Origin* origin
) noexcept nogil:
    """Add records to a batch; all values are copied. Call rc_stream_end() before another thread reads the batch.

    records   count checked records, not necessarily in one buffer, that point to readable memory
    end       if a topic or property string begins before it, all memory from the string up to end is readable; or NULL
    origin    where the records come from

    Returns RC_OK; RC_MORE if a column would exceed 2^31 bytes (nothing was added; start another batch); or an errno
    (out of memory).
    """
    cdef uint64_t wanted = rows.selected.bits
    cdef int64_t before = rows.rows, entries = rows.entries, bytes = rows.bytes
    cdef int column, i, rc = RC_OK
    cdef Kind kind
    for i in range(rows.selected.count):
        column = rows.selected.column[i]
        kind = kind_of(column)
        if kind == KIND_INT32:
            rc = int32s(rows, column, records, count)
        elif kind == KIND_INT64:
            rc = int64s(rows, column, records, count)
        elif kind == KIND_TIMESTAMP:
            rc = timestamps(rows, column, records, count)
        elif kind == KIND_BINARY:
            rc = bodies(rows, records, count)
        elif column == COL_TOPIC:
            rc = topics(rows, records, count, end)
        elif column == COL_MSG_ID:
            rc = msg_ids(rows, records, count)
        elif column == COL_FILE or column == COL_BROKER_NAME:
            rc = origins(rows, column, records, count, origin)
        elif column == COL_BORN_HOST or column == COL_STORE_HOST:
            rc = hosts(rows, column, records, count)
        if rc != RC_OK:
            break
    wanted &= (<uint64_t>1 << COL_KEYS) | (<uint64_t>1 << COL_TAGS) | (<uint64_t>1 << COL_PROPERTIES)
    if rc == RC_OK and wanted:
        rc = properties(rows, records, count, end)
    if rc != RC_OK:
        rows.entries = entries
        rows.rows = before + count
        cut_back(rows, before, bytes)
        return rc
    for i in range(count):
        rows.bytes += records[i].size
    rows.rows += count
    return RC_OK


cdef void cut_back(BatchBuffers* rows, int64_t to, int64_t bytes) noexcept nogil:
    """Remove the rows from `to` on; `bytes` is the value of rows.bytes before them."""
    cdef int column
    cdef int64_t row
    cdef ColumnBuffers* c
    for column in range(COLUMNS):
        c = &rows.col[column]
        if c.nulls > 0 and rows.selected.bits >> column & 1:
            c.nulls = 0
            for row in range(to):
                c.nulls += not (c.valid.p[row >> 3] >> (row & 7) & 1)
    if rows.selected.bits >> COL_PROPERTIES & 1:
        rows.entries = offsets_of(rows, COL_PROPERTIES)[to]
    rows.rows = to
    rows.bytes = bytes
