"""The keywords of open() and Queue that are fields of StoreConfig, for type checkers; sizes as text."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypedDict

from rocketc._arguments import shown, whole_number

Flush = Literal["async", "sync"]
Lock = Literal["reentrant", "spin", "adaptive"]
Size = int | str  # bytes, or text such as "64MiB"
StrPath = str | os.PathLike[str]

_SIZE = re.compile(r"(\d{1,15})\s*(?:([kmgt])i?)?b?", re.ASCII)


def parse_size(text: str) -> int:
    """Return the number of bytes of a size with or without a unit, in any case; KB, MB, GB and TB are binary units too.

    Raises ValueError if the text is not a size.

    >>> parse_size("64MiB"), parse_size("128m"), parse_size("1 GB"), parse_size("4096")
    (67108864, 134217728, 1073741824, 4096)
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a number of bytes, nor a size such as '64MiB'")
    return int(found[1]) << 10 * " kmgt".index(found[2] or " ")


def size_of(what: str, value: Size, least: int = 0) -> int:
    """Return an argument that is a number of bytes. Raises TypeError, or ValueError with its name and range.

    >>> size_of("batch_bytes", "64MiB")
    67108864
    >>> size_of("batch_bytes", "many")
    Traceback (most recent call last):
    ValueError: batch_bytes: 'many' is not a number of bytes, nor a size such as '64MiB'
    """
    if isinstance(value, str):
        try:
            value = parse_size(value)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None
    return whole_number(what, value, least, (1 << 63) - 1)


INT32_MOST = (1 << 31) - 1


def check_setting(said: str, value: object, default: object, least: int = 0, most: int = INT32_MOST) -> None:
    """Check a setting by the type of its default: true or false, a whole number, text; or text and None.

    said         name of the setting, for the message
    least, most  of a number
    A default of another type allows all values. Raises ValueError with the name, the value and what is allowed.

    >>> check_setting("listenPort", 70_000, 10_911, most=65_535)
    Traceback (most recent call last):
    ValueError: listenPort is 70000; allowed are 0 to 65535
    """
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"{said} is {value!r}; allowed are True and False")
    elif isinstance(default, int):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{said} is {shown(value)}; allowed are {least} to {most}")
    elif isinstance(value, str) or (value is None and default is None):
        return
    elif isinstance(default, str) or default is None:
        raise ValueError(f"{said} is {value!r}; it must be text")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: the nearest of the known ones, or nothing.

    >>> did_you_mean("flsh", ["flush", "lock"])
    '; did you mean flush?'
    """
    near = nearest(name, names)
    return "" if near is None else f"; did you mean {near}?"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that an unknown one most likely means; None if there is none.

    >>> nearest("flsh", ["flush", "lock"])
    'flush'
    """
    from difflib import get_close_matches  # late: only an error needs it

    names = list(names)
    near = [known for known in names if known.startswith(name)] or get_close_matches(name, names, n=1)
    return near[0] if near else None


def unknown_keyword(function: Callable[..., object], unknown: Mapping[str, object]) -> TypeError:
    """Return the exception for keywords that a function does not have; it names the nearest of those that it has.

    >>> unknown_keyword(parse_size, {"txt": "1k"})
    TypeError('parse_size(): unknown keyword txt; did you mean text?')
    """
    from inspect import signature  # late: only an error needs it

    name = next(iter(unknown))
    near = did_you_mean(name, [known for known in signature(function).parameters if known not in ("self", "unknown")])
    return TypeError(f"{function.__name__}(): unknown keyword {name}{near}")


class ConfigFields(TypedDict, total=False):
    """The fields of StoreConfig as keywords: docs and defaults are there. A test compares the two."""

    store_path_root_dir: StrPath | None
    store_path_commit_log: StrPath | None
    read_only_commit_log_store_paths: StrPath | None
    linked_folders: bool

    mapped_file_size_commit_log: Size
    warm_maped_file_enable: bool
    flush_least_pages_when_warm_maped_file: int
    data_read_ahead_enable: bool
    prepare: Literal["auto", "allocate", "populate", "write"]
    lock_files_in_memory: bool

    recovery: Literal["keep", "java"]
    check_crc_on_recover: bool

    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"]
    flush_interval_commit_log: int
    flush_commit_log_timed: bool
    flush_commit_log_least_pages: int
    flush_commit_log_thorough_interval: int
    wake_flush_when_put_message: bool
    sync_flush_timeout: int

    transient_store_pool_enable: bool
    transient_store_pool_size: int
    fast_fail_if_no_buffer_in_store_pool: bool
    commit_interval_commit_log: int
    commit_commit_log_least_pages: int
    commit_commit_log_thorough_interval: int
    wake_commit_when_put_message: bool

    use_reentrant_lock_when_put_message: bool
    use_abs_lock: bool
    spin_lock_collision_retreat_optimal_degree: int
    topic_queue_lock_num: int
    os_page_cache_busy_time_out_mills: int

    max_message_size: Size
    auto_message_version_on_topic_len: bool
    check_before_put_message: bool
    enabled_append_prop_crc: bool
    force_verify_prop_crc: bool
    duplication_enable: bool
    broker_role: Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
    store_host: tuple[str, int]

    delete_when: str
    file_reserved_time: int
    delete_file_batch_max: int
    clean_resource_interval: int
    delete_commit_log_files_interval: int
    delete_consume_queue_files_interval: int
    redelete_hanged_file_interval: int
    destroy_maped_file_interval_forcibly: int
    clean_file_forcibly_enable: bool
    disk_max_used_space_ratio: int
    disk_space_clean_forcibly_ratio: int
    disk_space_warning_level_ratio: int
    replicas_per_disk_partition: int
    logical_disk_space_clean_forcibly_threshold: float

    auto_create_topic_enable: bool
    default_topic_queue_nums: int

    mapped_file_size_consume_queue: Size
    mapper_file_size_batch_consume_queue: Size
    max_open_consume_queues: int
    flush_interval_consume_queue: int
    flush_consume_queue_least_pages: int
    flush_consume_queue_thorough_interval: int
    read_un_committed: bool
    hold_readers: bool
    message_delay_level: str
    enable_lmq: bool
    enable_multi_dispatch: bool

    max_transfer_bytes_on_message_in_memory: Size
    max_transfer_count_on_message_in_memory: int
    max_transfer_bytes_on_message_in_disk: Size
    max_transfer_count_on_message_in_disk: int
    access_message_in_memory_max_ratio: int
    max_filter_message_size: Size
    travel_cq_file_num_when_get_message: int
    offset_check_in_slave: bool

    message_index_enable: bool
    message_index_safe: bool
    max_hash_slot_num: int
    max_index_num: int

    enable_consume_queue_ext: bool
    mapped_file_size_consume_queue_ext: Size
    bit_map_length_consume_queue_ext: int
