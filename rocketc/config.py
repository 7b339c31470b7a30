"""StoreConfig: the settings of a store that is open for writing, under RocketMQ's names."""

from __future__ import annotations

import dataclasses
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from rocketc._arguments import shown
from rocketc._layout import BCQ_UNIT_BYTES, CQ_UNIT_BYTES
from rocketc.config_fields import ConfigFields, Flush, Lock, did_you_mean, parse_size

if TYPE_CHECKING:
    from typing_extensions import Unpack

_LARGEST = (1 << 31) - 1  # RocketMQ keeps each number in a Java int

# The smallest allowed value of a number; 0 if not listed.
_LEAST = {
    "mapped_file_size_commit_log": 128,
    "mapped_file_size_consume_queue": CQ_UNIT_BYTES,
    "mapper_file_size_batch_consume_queue": BCQ_UNIT_BYTES,
    "max_open_consume_queues": 1,
    "flush_interval_consume_queue": 1,
    "flush_interval_commit_log": 1,
    "commit_interval_commit_log": 1,
    "sync_flush_timeout": 1,
    "spin_lock_collision_retreat_optimal_degree": 1,
    "topic_queue_lock_num": 1,
    "default_topic_queue_nums": 1,
    "delete_file_batch_max": 1,
    "replicas_per_disk_partition": 1,
    "max_message_size": 10,
    "transient_store_pool_size": 1,
    "max_transfer_count_on_message_in_memory": 1,
    "max_transfer_count_on_message_in_disk": 1,
    "travel_cq_file_num_when_get_message": 1,
    "flush_least_pages_when_warm_maped_file": 1,
    "max_hash_slot_num": 1,
    "max_index_num": 2,
    "mapped_file_size_consume_queue_ext": 64,
}
_MOST = {"max_message_size": _LARGEST - (1 << 16)}  # a record is up to 64 KiB longer
_HOURS = re.compile(r"\s*([01]?\d|2[0-3])\s*(;\s*([01]?\d|2[0-3])\s*)*;?\s*", re.ASCII)
_ALLOWED = {
    "flush_disk_type": ("ASYNC_FLUSH", "SYNC_FLUSH"),
    "broker_role": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "prepare": ("auto", "allocate", "populate", "write"),
    "recovery": ("keep", "java"),
}
_PATHS = ("store_path_root_dir", "store_path_commit_log", "read_only_commit_log_store_paths")
_SIZES = frozenset(
    {
        "mapped_file_size_commit_log",
        "mapped_file_size_consume_queue",
        "mapper_file_size_batch_consume_queue",
        "mapped_file_size_consume_queue_ext",
        "max_message_size",
        "max_transfer_bytes_on_message_in_memory",
        "max_transfer_bytes_on_message_in_disk",
        "max_filter_message_size",
    }
)
# The sizes of files, which a store keeps once it has files: the field, RocketMQ's default.
ROCKETMQ_SIZES = {
    "mapped_file_size_commit_log": 1 << 30,
    "mapped_file_size_consume_queue": 300_000 * CQ_UNIT_BYTES,
    "mapper_file_size_batch_consume_queue": 300_000 * BCQ_UNIT_BYTES,
    "max_hash_slot_num": 5_000_000,
    "max_index_num": 20_000_000,
}
_OURS = ("store_host", "check_before_put_message", "prepare", "lock_files_in_memory", "recovery", "hold_readers")

# Keys of broker.conf that are not just their field's name in camel case, and keys of older releases.
_KEYS = {
    "use_abs_lock": "useABSLock",
    "enabled_append_prop_crc": "enabledAppendPropCRC",
    "force_verify_prop_crc": "forceVerifyPropCRC",
    "check_crc_on_recover": "checkCRCOnRecover",
}
_OLD_KEYS = {"mapedFileSizeCommitLog": "mappedFileSizeCommitLog"}

_FLUSH = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}
_LOCK = {
    "spin": {"use_reentrant_lock_when_put_message": False, "use_abs_lock": False},
    "reentrant": {"use_reentrant_lock_when_put_message": True, "use_abs_lock": False},
    "adaptive": {"use_abs_lock": True},
}


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """The settings of a store that is open for writing: RocketMQ's fields in snake_case, with RocketMQ 5's defaults.

    Only the defaults of the sizes of files are other ones, for a store within an application: a broker's files are 15
    to 50 times as large. StoreConfig.rocketmq() and from_properties() have RocketMQ's sizes. A store that has files
    keeps their sizes, unless you name another size.
    Sizes in bytes may be text with a unit, such as "64MiB". Paths are text or None. `store_path_commit_log` and
    `read_only_commit_log_store_paths` may be a comma-separated list.

    store_path_root_dir = None               the root; None: the path given to open()
    store_path_commit_log = None             folders of the commit log; None: `commitlog` below the root
    read_only_commit_log_store_paths = None  folders of older log files that are only read
    linked_folders = False                   True: `commitlog`, `consumequeue`, `index`, `config` and other folders in
                                             the root may be symbolic links; False: a writer refuses them

    Files of the commit log:

    mapped_file_size_commit_log = 67108864         bytes of each file; cannot change later. RocketMQ's is 1073741824
    warm_maped_file_enable = False                 prepare all pages of a new file before it is written to, and lock it
                                                   in memory as lock_files_in_memory does
    flush_least_pages_when_warm_maped_file = 4096  with SYNC_FLUSH: pages of 4096 bytes that are prepared between two
                                                   flushes
    data_read_ahead_enable = True                  False: tell the kernel that files are read in random order
    prepare = "auto"                               how a new file is prepared: "allocate" its space, "populate" its
                                                   pages as well, or "write" zeros to it; "auto" chooses
    lock_files_in_memory = False                   lock the file that is written to and the next one in memory (mlock).
                                                   Beyond RLIMIT_MEMLOCK they stay unlocked, with one warning

    Recovery, when a store is opened; see docs/howto/recovery.md:

    recovery = "keep"            "keep": end the log after everything that is known to be durable, and skip damage
                                 before that; "java": end it where RocketMQ does, at the first record that its recovery
                                 finds damaged
    check_crc_on_recover = True  check CRCs

    Flushing. A page is 4096 bytes:

    flush_disk_type = "ASYNC_FLUSH"             a put returns when the message is in the map ("ASYNC_FLUSH") or on the
                                                disk ("SYNC_FLUSH")
    flush_interval_commit_log = 500             ms between two flushes of ASYNC_FLUSH
    flush_commit_log_timed = True               False: a put may start the flush early
    flush_commit_log_least_pages = 4            pages; a flush waits until there are as many
    flush_commit_log_thorough_interval = 10000  ms after which everything is flushed, even less than these pages
    wake_flush_when_put_message = False         each put starts the flush of ASYNC_FLUSH
    sync_flush_timeout = 5000                   ms that a put of SYNC_FLUSH waits before it returns FLUSH_DISK_TIMEOUT

    The transient store pool: messages are written to private memory first, and copied to the file by a commit. Messages
    that are not committed are lost if the process dies:

    transient_store_pool_enable = False           use it. A SLAVE never does. With SYNC_FLUSH it only costs time: one
                                                  warning
    transient_store_pool_size = 5                 buffers of mapped_file_size_commit_log bytes each
    fast_fail_if_no_buffer_in_store_pool = False  True: a put fails if no buffer is free; False: it writes to the map
    commit_interval_commit_log = 200              ms between two commits
    commit_commit_log_least_pages = 4             pages; a commit waits until there are as many
    commit_commit_log_thorough_interval = 200     ms after which everything is committed, even less than these pages
    wake_commit_when_put_message = True           each put starts the commit

    Locks:

    use_reentrant_lock_when_put_message = True         the put lock: True: a mutex; False: a spin lock
    use_abs_lock = False                               use an adaptive put lock; overrides the field above
    spin_lock_collision_retreat_optimal_degree = 1000  spins of the adaptive lock before it first yields
    topic_queue_lock_num = 32                          stripes of the locks of topic and queue
    os_page_cache_busy_time_out_mills = 1000           ms; puts are refused while one put holds the lock for longer

    Messages:

    max_message_size = 4194304                     bytes of a body; a record may be 64 KiB longer
    auto_message_version_on_topic_len = True       records of version 2 for topics longer than 127 characters
    check_before_put_message = True                reject long topics and control characters in topics, as a broker
                                                   does; RocketMQ's store alone does not
    enabled_append_prop_crc = False                end each record with a CRC of the whole record
    force_verify_prop_crc = False                  check that CRC instead of the body's
    duplication_enable = False                     keep the queue offsets and times that messages already have
    broker_role = "ASYNC_MASTER"                   or "SLAVE", which accepts no messages; open() refuses "SYNC_MASTER",
                                                   whose puts wait for replicas, except for reading
    store_host = ("127.0.0.1", 10911)              address and port in records and message ids: brokerIP1 and listenPort

    Consume queues, and following the log:

    mapped_file_size_consume_queue = 400000            bytes of a file; rounded up to whole units of 20 bytes.
                                                       RocketMQ's is 6000000
    mapper_file_size_batch_consume_queue = 920000      bytes of a batch queue's file; units of 46 bytes. RocketMQ's is
                                                       13800000
    max_open_consume_queues = 8192                     queues whose files may be mapped at a time; the files of the
                                                       others are read and written with system calls
    flush_interval_consume_queue = 1000                ms between two flushes of queues with enough to flush
    flush_consume_queue_least_pages = 2                pages of 4096 bytes that are enough
    flush_consume_queue_thorough_interval = 60000      ms after which everything is flushed, including the index;
                                                       after 64 MiB of the log too
    read_un_committed = False                          with SYNC_FLUSH, show messages that are not durable yet
    hold_readers = False                               show only messages that were confirmed with confirm(), or that
                                                       existed when the store was opened
    message_delay_level = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"  the delay of each level
    enable_lmq = False                                 with enable_multi_dispatch: also dispatch messages to the light
    enable_multi_dispatch = False                      queues (%LMQ%...) in their property INNER_MULTI_DISPATCH

    Reading by queue. The four limits of a transfer apply only to a get() with broker_limits=True:

    max_transfer_bytes_on_message_in_memory = 262144  bytes of one get()
    max_transfer_count_on_message_in_memory = 32      messages of one get()
    max_transfer_bytes_on_message_in_disk = 65536     bytes, for messages that are no longer in memory
    max_transfer_count_on_message_in_disk = 8         messages, likewise
    access_message_in_memory_max_ratio = 40           percent of the memory; the log's last part of this size counts as
                                                      in memory
    max_filter_message_size = 16000                   bytes of consume queue units that one get() reads at least
    travel_cq_file_num_when_get_message = 1           consume queue files that one get() reads at least
    offset_check_in_slave = False                     a SLAVE corrects offsets outside of its queue

    Cleaning; see rocketc.cleaning:

    delete_when = "04"                                 hours of the day, local time, separated by `;`, at which expired
                                                       log files are deleted
    file_reserved_time = 72                            hours after its last change until a log file expires
    delete_file_batch_max = 10                         the most log files that one run deletes
    clean_resource_interval = 0                        ms between two automatic runs, the first after 60 s; 0: no
                                                       automatic runs. RocketMQ's is 10000
    delete_commit_log_files_interval = 100             ms between the deletions of two log files
    delete_consume_queue_files_interval = 100          ms of pause after a consume queue of which files were deleted
    redelete_hanged_file_interval = 120000             ms until the next try to delete a file that was in use
    destroy_maped_file_interval_forcibly = 120000      ms; a warning names a file that is in use for longer. RocketMQ
                                                       then unmaps it under its readers
    clean_file_forcibly_enable = True                  allow to delete files before they expire if the disk is too full
    disk_max_used_space_ratio = 75                     percent of the disk in use above which expired files are deleted
                                                       at any hour
    disk_space_clean_forcibly_ratio = 85               percent above which files that have not expired are deleted too
    disk_space_warning_level_ratio = 90                percent above which puts are refused, too
    replicas_per_disk_partition = 1                    stores that share the disk in equal parts
    logical_disk_space_clean_forcibly_threshold = 0.8  part of such a share above which files are deleted before they
                                                       expire

    Topics:

    auto_create_topic_enable = True  a put to an unknown topic creates it
    default_topic_queue_nums = 8     queues of TBW102, the template of new topics. A new topic gets at most this number,
                                     and at most the 4 queues that a producer asks for

    The index, which finds messages by key:

    message_index_enable = True   write it
    message_index_safe = False    recover from a point up to which the index, too, is durable
    max_hash_slot_num = 100000    hash slots of a file. RocketMQ's is 5000000
    max_index_num = 400000        keys of a file; a file has 40 + 4 * slots + 20 * keys bytes, at most 2147483647.
                                  RocketMQ's is 20000000

    Consume queue extensions, which keep the store timestamp and a filter's bit map next to the tags code:

    enable_consume_queue_ext = False               write them
    mapped_file_size_consume_queue_ext = 50331648  bytes of a file
    bit_map_length_consume_queue_ext = 64          bits of a bit map; rocketc leaves them zero

    Raises ValueError with the field, the value and the allowed values.

    >>> config = StoreConfig(flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log=64 << 20)
    >>> config.flush, config.lock
    ('sync', 'reentrant')
    >>> StoreConfig(topic_queue_lock_num=0)
    Traceback (most recent call last):
    ValueError: topic_queue_lock_num is 0; allowed are 1 to 2147483647
    """

    store_path_root_dir: str | None = None
    store_path_commit_log: str | None = None
    read_only_commit_log_store_paths: str | None = None
    linked_folders: bool = False

    mapped_file_size_commit_log: int = 64 << 20
    warm_maped_file_enable: bool = False
    flush_least_pages_when_warm_maped_file: int = 4096
    data_read_ahead_enable: bool = True
    prepare: str = "auto"
    lock_files_in_memory: bool = False

    recovery: str = "keep"
    check_crc_on_recover: bool = True

    flush_disk_type: str = "ASYNC_FLUSH"
    flush_interval_commit_log: int = 500
    flush_commit_log_timed: bool = True
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    wake_flush_when_put_message: bool = False
    sync_flush_timeout: int = 5000

    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    fast_fail_if_no_buffer_in_store_pool: bool = False
    commit_interval_commit_log: int = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    wake_commit_when_put_message: bool = True

    use_reentrant_lock_when_put_message: bool = True
    use_abs_lock: bool = False
    spin_lock_collision_retreat_optimal_degree: int = 1000
    topic_queue_lock_num: int = 32
    os_page_cache_busy_time_out_mills: int = 1000

    max_message_size: int = 4 << 20
    auto_message_version_on_topic_len: bool = True
    check_before_put_message: bool = True
    enabled_append_prop_crc: bool = False
    force_verify_prop_crc: bool = False
    duplication_enable: bool = False
    broker_role: str = "ASYNC_MASTER"
    store_host: tuple[str, int] = ("127.0.0.1", 10911)

    delete_when: str = "04"
    file_reserved_time: int = 72
    delete_file_batch_max: int = 10
    clean_resource_interval: int = 0
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    redelete_hanged_file_interval: int = 120_000
    destroy_maped_file_interval_forcibly: int = 120_000
    clean_file_forcibly_enable: bool = True
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90
    replicas_per_disk_partition: int = 1
    logical_disk_space_clean_forcibly_threshold: float = 0.8

    auto_create_topic_enable: bool = True
    default_topic_queue_nums: int = 8

    mapped_file_size_consume_queue: int = 20_000 * CQ_UNIT_BYTES
    mapper_file_size_batch_consume_queue: int = 20_000 * BCQ_UNIT_BYTES
    max_open_consume_queues: int = 8192
    flush_interval_consume_queue: int = 1000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000
    read_un_committed: bool = False
    hold_readers: bool = False
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False

    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 65_536
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    max_filter_message_size: int = 16_000
    travel_cq_file_num_when_get_message: int = 1
    offset_check_in_slave: bool = False

    message_index_enable: bool = True
    message_index_safe: bool = False
    max_hash_slot_num: int = 100_000
    max_index_num: int = 400_000

    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = 48 << 20
    bit_map_length_consume_queue_ext: int = 64

    if TYPE_CHECKING:  # the arguments allow more than the fields keep: "64MiB", a Path

        def __init__(self, **fields: Unpack[ConfigFields]) -> None: ...

    def __post_init__(self) -> None:
        for name in _DEFAULTS:
            object.__setattr__(self, name, _checked(name, getattr(self, name), said=name))
        if self.store_path_commit_log and not self.commit_log_paths(""):
            raise ValueError(
                f"store_path_commit_log is {self.store_path_commit_log!r}; one of these must not be in "
                "read_only_commit_log_store_paths"
            )

    @classmethod
    def rocketmq(cls, **fields: Unpack[ConfigFields]) -> StoreConfig:
        """Return settings with RocketMQ's sizes of files; `fields` override them, as in StoreConfig().

        >>> config = StoreConfig.rocketmq(flush_disk_type="SYNC_FLUSH")
        >>> config.mapped_file_size_commit_log, config.max_index_num, config.flush
        (1073741824, 20000000, 'sync')
        """
        given: dict[str, Any] = {**ROCKETMQ_SIZES, **fields}
        return cls(**given)

    @classmethod
    def of(
        cls,
        *,
        flush: Flush | None = None,
        lock: Lock | None = None,
        config: StoreConfig | None = None,
        **fields: Unpack[ConfigFields],
    ) -> StoreConfig:
        """Return the configuration for the keywords of open(): they override `config`, which overrides the defaults.

        flush   "async" or "sync": flush_disk_type
        lock    "spin", "reentrant" or "adaptive": use_reentrant_lock_when_put_message and use_abs_lock
        fields  any field

        Raises TypeError for an unknown field or for two arguments that set the same field; ValueError as StoreConfig.

        >>> StoreConfig.of(flush="sync", lock="spin", max_message_size=1 << 20).use_reentrant_lock_when_put_message
        False
        >>> StoreConfig.of(flush_interval=10)
        Traceback (most recent call last):
        TypeError: unknown field flush_interval; did you mean flush_interval_commit_log?
        """
        base = cls() if config is None else config
        if not isinstance(base, StoreConfig):
            raise TypeError(f"config must be a StoreConfig, not {type(config).__name__}")
        said: dict[str, Any] = {}
        if flush is not None:
            said["flush_disk_type"] = _FLUSH[_one_of("flush", flush, tuple(_FLUSH))]
        if lock is not None:
            said |= _LOCK[_one_of("lock", lock, tuple(_LOCK))]
        if twice := sorted(said.keys() & fields.keys()):
            short = "flush" if "flush_disk_type" in twice else "lock"
            raise TypeError(f"{short} and {twice[0]} set the same field; give only one of them")
        return base.replace(**said, **fields)

    @classmethod
    def from_properties(cls, source: str | os.PathLike[str] | TextIO) -> StoreConfig:
        """Read the fields that a broker's broker.conf sets; all other fields are those of StoreConfig.rocketmq().

        source  path of the file, or an open text file, in the format of Java's properties: comments; `=`, `:` or a
                blank after the key; a backslash at the end of a line continues it; escapes. A file is read as
                ISO-8859-1, other characters are \\uXXXX

        Keys of older releases (mapedFileSizeCommitLog) set the field of today's key. One UserWarning lists the keys
        that rocketc does not use. Raises ValueError with the file, the key and the allowed values; OSError.

        >>> import io
        >>> config = StoreConfig.from_properties(io.StringIO("flushDiskType = SYNC_FLUSH\\nmaxMessageSize: 65536"))
        >>> config.flush, config.max_message_size
        ('sync', 65536)
        """
        if isinstance(source, str | os.PathLike):
            name = os.fspath(source)
            with open(name, encoding="iso-8859-1", newline="") as file:
                text = file.read()
        else:
            name = str(getattr(source, "name", "broker.conf"))
            text = source.read()
        try:
            found = dict(properties(text))
            fields, unused = store_fields(found)
            made = cls.rocketmq(**fields)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if unused:
            warnings.warn(f"{name}: not used here: {', '.join(unused)}", UserWarning, stacklevel=2)
        return made

    def replace(self, **fields: Unpack[ConfigFields]) -> StoreConfig:
        """Return a copy with other values. Raises TypeError for an unknown field.

        >>> StoreConfig().replace(use_abs_lock=True).lock
        'adaptive'
        """
        given: dict[str, Any] = dict(fields)
        for name in given:
            if name not in _DEFAULTS:
                raise TypeError(f"unknown field {name}{_nearest(name)}")
        return dataclasses.replace(self, **given)

    @property
    def flush(self) -> str:
        """When a put returns: "sync" (durable) or "async"."""
        return "sync" if self.flush_disk_type == "SYNC_FLUSH" else "async"

    @property
    def has_store_pool(self) -> bool:
        """Whether puts go to the transient store pool: a slave's bytes never do.

        >>> StoreConfig(transient_store_pool_enable=True, broker_role="SLAVE").has_store_pool
        False
        """
        return self.transient_store_pool_enable and self.broker_role != "SLAVE"

    @property
    def lock(self) -> str:
        """The put lock: "spin", "reentrant" or "adaptive"."""
        if self.use_abs_lock:
            return "adaptive"
        return "reentrant" if self.use_reentrant_lock_when_put_message else "spin"

    def commit_log_paths(self, root: str | os.PathLike[str]) -> list[str]:
        """Return the folders for new log files, sorted by name; `root` is the store's root.

        >>> StoreConfig(store_path_commit_log="/disk2/log,/disk1/log").commit_log_paths("/store")
        ['/disk1/log', '/disk2/log']
        """
        read_only = set(self.read_only_paths)
        named = _split(self.store_path_commit_log) or [os.path.join(os.fspath(root), "commitlog")]
        return sorted(path for path in named if path not in read_only)

    @property
    def read_only_paths(self) -> list[str]:
        """The folders of read_only_commit_log_store_paths, sorted by name."""
        return sorted(_split(self.read_only_commit_log_store_paths))

    def log_paths(self, root: str | os.PathLike[str]) -> list[str]:
        """Return all folders that may contain files of the log.

        >>> StoreConfig(read_only_commit_log_store_paths="/old").log_paths("/store")
        ['/store/commitlog', '/old']
        """
        return [*self.commit_log_paths(root), *self.read_only_paths]

    @property
    def delete_hours(self) -> frozenset[int]:
        """The hours of delete_when.

        >>> sorted(StoreConfig(delete_when="04;16").delete_hours)
        [4, 16]
        """
        return frozenset(int(hour) for hour in self.delete_when.split(";") if hour.strip())


_DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(StoreConfig)}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


# broker.conf's key -> the field
_FIELD_OF_KEY = {_KEYS.get(name, _camel(name)): name for name in _DEFAULTS if name not in _OURS}


def named_sizes(config: StoreConfig) -> frozenset[str]:
    """Return the fields of sizes of files whose values are neither the default nor RocketMQ's: the caller chose them.

    >>> named_sizes(StoreConfig(max_hash_slot_num=1000, max_index_num=20_000_000))
    frozenset({'max_hash_slot_num'})
    """
    return frozenset(
        name for name, theirs in ROCKETMQ_SIZES.items() if getattr(config, name) not in (_DEFAULTS[name], theirs)
    )


def broker_conf(config: StoreConfig, names: Iterable[str]) -> dict[str, Any]:
    """Return fields of the settings under the keys of broker.conf.

    >>> broker_conf(StoreConfig(), ["max_index_num"])
    {'maxIndexNum': 400000}
    """
    return {_KEYS.get(name, _camel(name)): getattr(config, name) for name in names}


def rocketmq_properties(config: StoreConfig) -> dict[str, Any]:
    """Return all settings that RocketMQ has too, under the keys of broker.conf.

    >>> rocketmq_properties(StoreConfig())["flushDiskType"]
    'ASYNC_FLUSH'
    """
    return {key: getattr(config, name) for key, name in _FIELD_OF_KEY.items()}


def changed_store_fields(changes: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of StoreConfig that have these keys of broker.conf. Other keys are left out.

    Raises ValueError for a wrong value.

    >>> changed_store_fields({"fileReservedTime": "48", "brokerName": "broker-a"})
    {'file_reserved_time': 48}
    """
    return {
        _FIELD_OF_KEY[key]: _checked(
            _FIELD_OF_KEY[key], typed_property(key, _DEFAULTS[_FIELD_OF_KEY[key]], text.strip()), said=key
        )
        for key, text in changes.items()
        if key in _FIELD_OF_KEY
    }


def refuse_unknown(function: str, names: Iterable[str], others: Iterable[str]) -> None:
    """Raise TypeError if one of the names is not a keyword of a function that takes all fields.

    others  its keywords that are not fields

    >>> refuse_unknown("open()", ["flsh"], ["flush", "lock"])
    Traceback (most recent call last):
    TypeError: open(): unknown keyword flsh; did you mean flush?
    """
    for name in names:
        if name not in _DEFAULTS and name not in others:
            raise TypeError(f"{function}: unknown keyword {name}{_nearest(name, others)}")


def refuse_sync_master(config: StoreConfig) -> None:
    """Raise ValueError if a put must wait for a replica: puts to a bare store do not.

    >>> refuse_sync_master(StoreConfig(broker_role="SYNC_MASTER"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: broker_role is SYNC_MASTER, but there is no replication here whose replicas a put could wait for; ...
    """
    if config.broker_role == "SYNC_MASTER":
        raise ValueError(
            "broker_role is SYNC_MASTER, but there is no replication here whose replicas a put could wait for; use "
            "ASYNC_MASTER with rocketc.ha.Master, or read_only=True to read"
        )


def _split(paths: str | None) -> list[str]:
    return list(dict.fromkeys(path.strip() for path in (paths or "").split(",") if path.strip()))


def _nearest(name: str, others: Iterable[str] = ()) -> str:
    if name in _FIELD_OF_KEY:
        return f"; use its name {_FIELD_OF_KEY[name]}"
    return did_you_mean(name, [*others, *_DEFAULTS])


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed are {', '.join(allowed)}")
    return value


def _checked(name: str, value: Any, said: str) -> Any:
    """Return the value in the form in which the field keeps it.

    said  name of the field in the source of the value; used in messages

    Raises ValueError if the field does not allow the value.
    """
    if name in _ALLOWED:
        return _one_of(said, value, _ALLOWED[name])
    if name in _PATHS:
        return _checked_path(said, value)
    if name == "store_host":
        return _checked_host(said, value)
    if name == "delete_when":
        if not isinstance(value, str) or not _HOURS.fullmatch(value):
            raise ValueError(f"{said} is {value!r}; allowed are hours from 0 to 23, as in '04;16'")
        return value
    if isinstance(_DEFAULTS[name], str):
        if not isinstance(value, str):
            raise ValueError(f"{said} is {value!r}; it must be text")
        return value
    if isinstance(_DEFAULTS[name], bool):
        if not isinstance(value, bool):
            raise ValueError(f"{said} is {value!r}; allowed are True and False")
        return value
    if isinstance(_DEFAULTS[name], float):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"{said} is {shown(value)}; allowed are 0.0 to 1.0")
        return float(value)
    given = value
    if name in _SIZES and isinstance(value, str):
        try:
            value = parse_size(value)
        except ValueError as error:
            raise ValueError(f"{said}: {error}") from None
    least, most = _LEAST.get(name, 0), _MOST.get(name, _LARGEST)
    if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= value.__index__() <= most:
        raise ValueError(f"{said} is {shown(given)}; allowed are {least} to {most}")
    return value.__index__()


def _checked_path(said: str, value: Any) -> str | None:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip(", ") or "\0" in value:
        raise ValueError(f"{said} is {value!r}; allowed are a path and None")
    return value


def _checked_host(said: str, value: Any) -> tuple[str, int]:
    from ipaddress import ip_address

    try:
        host, port = value
        if isinstance(host, str) and "%" not in host and not isinstance(port, bool) and 0 <= port < 1 << 16:
            return str(ip_address(host)), port.__index__()
    except (AttributeError, TypeError, ValueError):
        pass
    raise ValueError(f"{said} is {value!r}; allowed are an IP address and a port, as in ('127.0.0.1', 10911)")


def store_fields(found: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return keyword arguments of StoreConfig for the pairs of a broker.conf, and the unknown keys.

    >>> store_fields({"maxMessageSize": "65536", "brokerName": "broker-a"})[0]["max_message_size"]
    65536
    """
    fields: dict[str, Any] = {}
    unused = []
    host, port = _DEFAULTS["store_host"]
    for key, text in found.items():
        value = text.strip()
        today = _OLD_KEYS.get(key, key)
        if today == "brokerIP1":
            host = value
        elif today == "listenPort":
            port = _number(key, value)
        elif today not in _FIELD_OF_KEY:
            unused.append(key)
        elif today == key or today not in found:
            name = _FIELD_OF_KEY[today]
            fields[name] = _checked(name, typed_property(key, _DEFAULTS[name], value), said=key)
    fields["store_host"] = _checked("store_host", (host, port), said="brokerIP1, listenPort")
    return fields, unused


def typed_property(key: str, default: object, value: str) -> object:
    """Return the value of a text in a properties file, with the type of the setting's default. Raises ValueError.

    >>> typed_property("maxMessageSize", 4194304, "65536"), typed_property("brokerIP1", None, "10.0.0.1")
    (65536, '10.0.0.1')
    """
    if isinstance(default, bool):
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{key} is {value!r}; allowed are true and false")
        return value.lower() == "true"
    if isinstance(default, int):
        return _number(key, value)
    if isinstance(default, float):
        try:
            return float(value)
        except ValueError:
            raise ValueError(f"{key} is {value!r}, which is not a number") from None
    return value or None if default is None else value


def _number(key: str, value: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", value):
        raise ValueError(f"{key} is {value!r}, which is not a whole number")
    return int(value)


_BLANK = " \t\f"
_COMMENT = ("#", "!")
_KEY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def properties(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a text in the format of Java's properties, in order; of equal keys the last one counts.

    Raises ValueError for a \\u without four hexadecimal digits.

    >>> dict(properties("# a comment\\npath = /a,\\\\\\n    /b\\nport:1"))
    {'path': '/a,/b', 'port': '1'}
    """
    for line in _logical_lines(iter(re.split("\r\n|\r|\n", text))):
        match = _KEY.fullmatch(line)
        assert match is not None
        yield _plain(match[1]), _plain(match[2])


def _logical_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines without comments and blank lines; join a line that ends with an unescaped backslash with the next."""
    lines = iter(lines)
    for line in lines:
        line = line.lstrip(_BLANK)
        if line.startswith(_COMMENT):
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2 == 1:
            more = next(lines, None)
            line = line[:-1]
            if more is None:
                break
            line += more.lstrip(_BLANK)
        if line:
            yield line


def _plain(text: str) -> str:
    """Return the text with its escapes replaced."""

    def one(match: re.Match[str]) -> str:
        what = match[1]
        if what[0] != "u":
            return _ESCAPED.get(what, what)
        if len(what) == 1:
            raise ValueError(f"{match.string!r} has a \\u without four hexadecimal digits")
        return chr(int(what[1:], 16))

    # Java writes a surrogate pair as two escapes; in Python it is one character.
    return _ESCAPE.sub(one, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
