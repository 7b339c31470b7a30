"""StoreConfig: RocketMQ's defaults, refused values, and broker.conf as Java reads it."""

import dataclasses
import inspect
import io
import os
import re
import shutil
import subprocess
import typing
import warnings
from pathlib import Path

import pytest
from support import stores

from rocketc.config import StoreConfig, properties
from rocketc.config_fields import ConfigFields

# RocketMQ's MessageStoreConfig: key in broker.conf, field, default of RocketMQ 5.
ROCKETMQ = [
    ("storePathRootDir", "store_path_root_dir", None),  # in RocketMQ: $HOME/store
    ("storePathCommitLog", "store_path_commit_log", None),
    ("readOnlyCommitLogStorePaths", "read_only_commit_log_store_paths", None),
    ("mappedFileSizeCommitLog", "mapped_file_size_commit_log", 1073741824),
    ("flushDiskType", "flush_disk_type", "ASYNC_FLUSH"),
    ("brokerRole", "broker_role", "ASYNC_MASTER"),
    ("flushIntervalCommitLog", "flush_interval_commit_log", 500),
    ("flushCommitLogTimed", "flush_commit_log_timed", True),
    ("flushCommitLogLeastPages", "flush_commit_log_least_pages", 4),
    ("flushCommitLogThoroughInterval", "flush_commit_log_thorough_interval", 10000),
    ("commitIntervalCommitLog", "commit_interval_commit_log", 200),
    ("commitCommitLogLeastPages", "commit_commit_log_least_pages", 4),
    ("commitCommitLogThoroughInterval", "commit_commit_log_thorough_interval", 200),
    ("syncFlushTimeout", "sync_flush_timeout", 5000),
    ("wakeFlushWhenPutMessage", "wake_flush_when_put_message", False),
    ("wakeCommitWhenPutMessage", "wake_commit_when_put_message", True),
    ("useReentrantLockWhenPutMessage", "use_reentrant_lock_when_put_message", True),
    ("useABSLock", "use_abs_lock", False),
    ("spinLockCollisionRetreatOptimalDegree", "spin_lock_collision_retreat_optimal_degree", 1000),
    ("topicQueueLockNum", "topic_queue_lock_num", 32),
    ("osPageCacheBusyTimeOutMills", "os_page_cache_busy_time_out_mills", 1000),
    ("maxMessageSize", "max_message_size", 4194304),
    ("autoMessageVersionOnTopicLen", "auto_message_version_on_topic_len", True),
    ("enabledAppendPropCRC", "enabled_append_prop_crc", False),
    ("forceVerifyPropCRC", "force_verify_prop_crc", False),
    ("checkCRCOnRecover", "check_crc_on_recover", True),
    ("duplicationEnable", "duplication_enable", False),
    ("transientStorePoolEnable", "transient_store_pool_enable", False),
    ("transientStorePoolSize", "transient_store_pool_size", 5),
    ("fastFailIfNoBufferInStorePool", "fast_fail_if_no_buffer_in_store_pool", False),
    ("warmMapedFileEnable", "warm_maped_file_enable", False),
    ("flushLeastPagesWhenWarmMapedFile", "flush_least_pages_when_warm_maped_file", 4096),
    ("dataReadAheadEnable", "data_read_ahead_enable", True),
    ("maxTransferBytesOnMessageInMemory", "max_transfer_bytes_on_message_in_memory", 262144),
    ("maxTransferCountOnMessageInMemory", "max_transfer_count_on_message_in_memory", 32),
    ("maxTransferBytesOnMessageInDisk", "max_transfer_bytes_on_message_in_disk", 65536),
    ("maxTransferCountOnMessageInDisk", "max_transfer_count_on_message_in_disk", 8),
    ("accessMessageInMemoryMaxRatio", "access_message_in_memory_max_ratio", 40),
    ("maxFilterMessageSize", "max_filter_message_size", 16000),
    ("travelCqFileNumWhenGetMessage", "travel_cq_file_num_when_get_message", 1),
    ("offsetCheckInSlave", "offset_check_in_slave", False),
    ("deleteWhen", "delete_when", "04"),
    ("fileReservedTime", "file_reserved_time", 72),
    ("deleteFileBatchMax", "delete_file_batch_max", 10),
    ("cleanResourceInterval", "clean_resource_interval", 0),  # in RocketMQ: 10000
    ("deleteCommitLogFilesInterval", "delete_commit_log_files_interval", 100),
    ("deleteConsumeQueueFilesInterval", "delete_consume_queue_files_interval", 100),
    ("redeleteHangedFileInterval", "redelete_hanged_file_interval", 120000),
    ("destroyMapedFileIntervalForcibly", "destroy_maped_file_interval_forcibly", 120000),
    ("cleanFileForciblyEnable", "clean_file_forcibly_enable", True),
    ("diskMaxUsedSpaceRatio", "disk_max_used_space_ratio", 75),
    ("diskSpaceCleanForciblyRatio", "disk_space_clean_forcibly_ratio", 85),
    ("diskSpaceWarningLevelRatio", "disk_space_warning_level_ratio", 90),
    ("replicasPerDiskPartition", "replicas_per_disk_partition", 1),
    ("logicalDiskSpaceCleanForciblyThreshold", "logical_disk_space_clean_forcibly_threshold", 0.8),
    ("autoCreateTopicEnable", "auto_create_topic_enable", True),
    ("defaultTopicQueueNums", "default_topic_queue_nums", 8),
    ("mappedFileSizeConsumeQueue", "mapped_file_size_consume_queue", 6_000_000),
    ("mapperFileSizeBatchConsumeQueue", "mapper_file_size_batch_consume_queue", 13_800_000),
    ("flushIntervalConsumeQueue", "flush_interval_consume_queue", 1000),
    ("flushConsumeQueueLeastPages", "flush_consume_queue_least_pages", 2),
    ("flushConsumeQueueThoroughInterval", "flush_consume_queue_thorough_interval", 60_000),
    ("readUnCommitted", "read_un_committed", False),
    ("messageDelayLevel", "message_delay_level", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"),
    ("enableLmq", "enable_lmq", False),
    ("enableMultiDispatch", "enable_multi_dispatch", False),
    ("messageIndexEnable", "message_index_enable", True),
    ("messageIndexSafe", "message_index_safe", False),
    ("maxHashSlotNum", "max_hash_slot_num", 5000000),
    ("maxIndexNum", "max_index_num", 20000000),
    ("enableConsumeQueueExt", "enable_consume_queue_ext", False),
    ("mappedFileSizeConsumeQueueExt", "mapped_file_size_consume_queue_ext", 50331648),
    ("bitMapLengthConsumeQueueExt", "bit_map_length_consume_queue_ext", 64),
]
OURS = {
    "store_host": ("127.0.0.1", 10911),
    "check_before_put_message": True,
    "prepare": "auto",
    "lock_files_in_memory": False,
    "recovery": "keep",
    "hold_readers": False,
    "linked_folders": False,
    "max_open_consume_queues": 8192,
}
TEXTS = {"flush_disk_type": "SYNC_FLUSH", "broker_role": "SLAVE", "delete_when": "2;14"}
SMALL = {  # the sizes of an embedded store's files
    "mapped_file_size_commit_log": 67108864,
    "mapped_file_size_consume_queue": 400_000,
    "mapper_file_size_batch_consume_queue": 920_000,
    "max_hash_slot_num": 100_000,
    "max_index_num": 400_000,
}
DEFAULTS = {name: default for _, name, default in ROCKETMQ} | OURS | SMALL
NUMBERS = sorted(name for name, default in DEFAULTS.items() if type(default) is int)
SWITCHES = sorted(name for name, default in DEFAULTS.items() if type(default) is bool)
SIZES = sorted(name for name in DEFAULTS if re.search("size|bytes", name) and name != "transient_store_pool_size")
KEY_OF = {name: key for key, name, _ in ROCKETMQ}
ALLOWED = {
    "flush_disk_type": ("ASYNC_FLUSH", "SYNC_FLUSH"),
    "broker_role": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "prepare": ("auto", "allocate", "populate", "write"),
    "recovery": ("keep", "java"),
}
PATHS = sorted(name for name, default in DEFAULTS.items() if default is None)


def conf(text: str) -> StoreConfig:
    return StoreConfig.from_properties(io.StringIO(text))


def test_defaults():
    assert dataclasses.asdict(StoreConfig()) == DEFAULTS
    assert dataclasses.asdict(StoreConfig.rocketmq()) == {name: default for _, name, default in ROCKETMQ} | OURS
    assert conf("") == StoreConfig.rocketmq()


def test_the_keywords_for_type_checkers_are_the_fields():
    """open(), Queue and StoreConfig take ConfigFields; sizes may be text, paths may be PathLikes."""
    fields = typing.get_type_hints(StoreConfig)
    keywords = typing.get_type_hints(ConfigFields)
    assert list(keywords) == [field.name for field in dataclasses.fields(StoreConfig)]
    for name, kind in keywords.items():
        if typing.get_origin(kind) is typing.Literal:
            assert typing.get_args(kind) == ALLOWED[name]
        else:
            wider = {**dict.fromkeys(SIZES, int | str), **dict.fromkeys(PATHS, str | os.PathLike[str] | None)}
            assert kind == wider.get(name, fields[name]), name


def test_every_field_is_documented_with_its_default():
    told = dict(re.findall(r'^(\w+) = (\(.*?\)|".*?"|\S+)  ', inspect.getdoc(StoreConfig), re.M))
    assert told == {name: repr(default).replace("'", '"') for name, default in DEFAULTS.items()}


@pytest.mark.parametrize(("key", "name", "default"), ROCKETMQ)
def test_every_key_of_broker_conf(key, name, default):
    if isinstance(default, bool):
        text, meant = str(not default).lower(), not default
    elif isinstance(default, int):
        text, meant = "77777", 77777
    elif isinstance(default, float):
        text, meant = "0.25", 0.25
    else:
        text = meant = TEXTS.get(name, "/disk1/store")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert conf(f"{key}={text}") == StoreConfig.rocketmq(**{name: meant})


# Refused values


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, 1 << 31, 1.5, "5", "4GiB", None, True])
def test_wrong_numbers(name, value):
    if value == "5" and name in SIZES:
        value = "-5"
        with pytest.raises(ValueError, match=rf"^{name}: '-5' is not a number of bytes, nor a size such as '64MiB'$"):
            StoreConfig(**{name: value})
        return
    with pytest.raises(ValueError, match=rf"^{name} is {re.escape(repr(value))}; allowed are \d+ to \d+$"):
        StoreConfig(**{name: value})


@pytest.mark.parametrize("name", SIZES)
def test_sizes_with_a_unit(name):
    for text, size in (("64KiB", 1 << 16), ("3m", 3 << 20), ("1 GB", 1 << 30), ("70000", 70_000)):
        assert StoreConfig(**{name: text}) == StoreConfig.of(**{name: text}) == StoreConfig(**{name: size})
    for text in ("", "MiB", "1.5GiB", "64XB", "64MiBB", "-1KiB", "\u0661KiB"):
        with pytest.raises(ValueError, match=rf"^{name}: .* is not a number of bytes, nor a size such as '64MiB'$"):
            StoreConfig(**{name: text})
    with pytest.raises(ValueError, match="which is not a whole number"):  # as RocketMQ: Java reads no units
        conf(f"{KEY_OF[name]}=64KiB")


@pytest.mark.parametrize("value", ["", "24", "4,16", "four", "-1", "4;;5", None, 4])
def test_wrong_hours(value):
    with pytest.raises(ValueError, match=re.escape(f"delete_when is {value!r}; allowed are hours from 0 to 23")):
        StoreConfig(delete_when=value)


@pytest.mark.parametrize(
    ("text", "hours"), [("04", {4}), ("4;16", {4, 16}), (" 0 ; 23;", {0, 23}), ("09;9;10", {9, 10})]
)
def test_hours(text, hours):
    assert StoreConfig(delete_when=text).delete_hours == hours


@pytest.mark.parametrize("value", [-0.1, 1.1, "0.5", None, True])
def test_wrong_ratios(value):
    with pytest.raises(ValueError, match=r"^logical_disk_\w+_threshold is .*; allowed are 0.0 to 1.0$"):
        StoreConfig(logical_disk_space_clean_forcibly_threshold=value)
    with pytest.raises(ValueError, match="which is not a number"):
        conf("logicalDiskSpaceCleanForciblyThreshold=much")


@pytest.mark.parametrize("name", NUMBERS)
def test_the_minimum_and_the_maximum(name):
    with pytest.raises(ValueError) as refused:
        StoreConfig(**{name: -1})
    least, most = map(int, re.findall(r"(\d+) to (\d+)", str(refused.value))[0])
    for value in (least, most):
        assert getattr(StoreConfig(**{name: value}), name) == value
    for value in (least - 1, most + 1):
        with pytest.raises(ValueError, match=name):
            StoreConfig(**{name: value})


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", [1, 0, "true", None])
def test_wrong_switches(name, value):
    with pytest.raises(ValueError, match=f"^{name} is {value!r}; allowed are True and False$"):
        StoreConfig(**{name: value})


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("flush_disk_type", "ASYNC_FLUSH, SYNC_FLUSH"),
        ("broker_role", "ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("prepare", "auto, allocate, populate, write"),
    ],
)
@pytest.mark.parametrize("value", ["sync", "", None, 1])
def test_wrong_choices(name, allowed, value):
    with pytest.raises(ValueError, match=f"^{name} is {value!r}; allowed are {allowed}$"):
        StoreConfig(**{name: value})
    for choice in allowed.split(", "):
        assert getattr(StoreConfig(**{name: choice}), name) == choice


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("value", ["", " ", ",", "a\0b", b"/store", 5])
def test_wrong_paths(name, value):
    with pytest.raises(ValueError, match=rf"^{name} is {re.escape(repr(value))}; allowed are a path and None$"):
        StoreConfig(**{name: value})
    assert getattr(StoreConfig(**{name: Path("/store")}), name) == "/store"


@pytest.mark.parametrize(
    "value",
    [
        None,
        "127.0.0.1:10911",
        ("localhost", 1),
        ("127.0.0.1",),
        ("127.0.0.1", -1),
        ("127.0.0.1", 65536),
        ("127.0.0.1", True),
        ("127.0.0.1", 1.5),
        ("127.0.0.1", "10911"),
        ("fe80::1%eth0", 10911),
        (2130706433, 10911),
        (b"\x7f\0\0\1", 10911),
    ],
)
def test_wrong_store_hosts(value):
    with pytest.raises(
        ValueError, match=rf"^store_host is {re.escape(repr(value))}; allowed are an IP address and a port"
    ):
        StoreConfig(store_host=value)


@pytest.mark.parametrize("value", [("10.0.0.1", 0), ("::1", 65535), ("1050::5:600:300c:326b", 10911)])
def test_store_host(value):
    assert StoreConfig(store_host=value).store_host == value
    assert StoreConfig(store_host=list(value)).store_host == value


def test_all_folders_read_only():
    with pytest.raises(ValueError, match="'/a,/b'; one of these must not be in read_only_commit_log_store_paths"):
        StoreConfig(store_path_commit_log="/a,/b", read_only_commit_log_store_paths="/b,/a,/c")


def test_frozen_and_by_keyword_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        StoreConfig().max_message_size = 1
    with pytest.raises(TypeError):
        StoreConfig("store")
    assert len({StoreConfig(), StoreConfig(), StoreConfig(use_abs_lock=True)}) == 2


# Arguments of open()


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_flush(flush):
    made = StoreConfig.of(flush=flush)
    assert made.flush == flush
    assert made.flush_disk_type == f"{flush.upper()}_FLUSH"


@pytest.mark.parametrize("lock", ["spin", "reentrant", "adaptive"])
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("adaptive", [True, False])
def test_lock(lock, reentrant, adaptive):
    before = StoreConfig(use_reentrant_lock_when_put_message=reentrant, use_abs_lock=adaptive)
    assert before.lock == ("adaptive" if adaptive else "reentrant" if reentrant else "spin")
    made = StoreConfig.of(config=before, lock=lock)
    assert made.lock == lock
    assert made.use_abs_lock is (lock == "adaptive")
    assert lock == "adaptive" or made.use_reentrant_lock_when_put_message is (lock == "reentrant")


def test_abs_lock_overrides():
    text = "useReentrantLockWhenPutMessage={}\nuseABSLock=true"
    assert {conf(text.format(value)).lock for value in ("true", "false")} == {"adaptive"}


def test_keywords_override_a_config():
    base = StoreConfig(flush_disk_type="SYNC_FLUSH", max_message_size=100)
    assert StoreConfig.of(config=base) == base
    assert StoreConfig.of(config=base, flush="async", topic_queue_lock_num=1) == StoreConfig(
        max_message_size=100, topic_queue_lock_num=1
    )
    assert StoreConfig.of() == StoreConfig()


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("max_mesage_size", "did you mean max_message_size?"),
        ("flush_interval", "did you mean flush_interval_commit_log?"),
        ("mappedFileSizeCommitLog", "use its name mapped_file_size_commit_log"),
        ("useABSLock", "use its name use_abs_lock"),
    ],
)
def test_unknown_fields(given, near):
    for make in (StoreConfig.of, StoreConfig().replace):
        with pytest.raises(TypeError, match=rf"^unknown field {given}; {re.escape(near)}$"):
            make(**{given: 1})
    with pytest.raises(TypeError, match=r"^unknown field qqqqqq$"):
        StoreConfig.of(qqqqqq=1)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"flush": "sync", "flush_disk_type": "SYNC_FLUSH"}, "^flush and flush_disk_type set the same field"),
        ({"lock": "spin", "use_abs_lock": True}, "^lock and use_abs_lock set the same field"),
        ({"config": {"flush": "sync"}}, "^config must be a StoreConfig, not dict$"),
    ],
)
def test_wrong_keywords(keywords, message):
    with pytest.raises(TypeError, match=message):
        StoreConfig.of(**keywords)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"flush": "SYNC"}, "^flush is 'SYNC'; allowed are async, sync$"),
        ({"lock": "mutex"}, "^lock is 'mutex'; allowed are spin, reentrant, adaptive$"),
        ({"lock": 1}, "^lock is 1; "),
        ({"max_message_size": 1}, "^max_message_size is 1; "),
    ],
)
def test_values_of_keywords(keywords, message):
    with pytest.raises(ValueError, match=message):
        StoreConfig.of(**keywords)


def test_commit_log_paths(tmp_path):
    assert StoreConfig().commit_log_paths(tmp_path) == [str(tmp_path / "commitlog")]
    several = StoreConfig(store_path_commit_log="/d3, /d1,/d2,/d1", read_only_commit_log_store_paths="/d2,/d0")
    assert several.commit_log_paths(tmp_path) == ["/d1", "/d3"]
    assert several.read_only_paths == ["/d0", "/d2"]
    assert StoreConfig().read_only_paths == []


# broker.conf


BROKER_CONF = """\
brokerClusterName = DefaultCluster
brokerIP1=192.168.1.10
listenPort=20911
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = SYNC_FLUSH
storePathRootDir = /data/rocketmq/store
storePathCommitLog =
"""


def test_a_whole_broker_conf(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text(BROKER_CONF)
    with pytest.warns(UserWarning) as told:
        made = StoreConfig.from_properties(path)
    assert made == StoreConfig.rocketmq(
        store_host=("192.168.1.10", 20911),
        flush_disk_type="SYNC_FLUSH",
        store_path_root_dir="/data/rocketmq/store",
        delete_when="04",
        file_reserved_time=48,
    )
    assert [str(one.message) for one in told] == [f"{path}: not used here: brokerClusterName"]
    assert told[0].filename == __file__
    with path.open() as file, pytest.warns(UserWarning, match=re.escape(str(path))):
        assert StoreConfig.from_properties(file) == made


def test_old_key_names():
    assert conf("mapedFileSizeCommitLog=65536").mapped_file_size_commit_log == 65536
    both = ["mapedFileSizeCommitLog=65536", "mappedFileSizeCommitLog=131072"]
    assert {conf("\n".join(lines)).mapped_file_size_commit_log for lines in (both, both[::-1])} == {131072}


def test_unknown_keys_are_named_once():
    with pytest.warns(UserWarning) as told:
        conf("a=1\nb=2\na=3\nprepare=write\nstoreHost=::1")
    assert [str(one.message) for one in told] == ["broker.conf: not used here: a, b, prepare, storeHost"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maxMessageSize=4M", "maxMessageSize is '4M', which is not a whole number"),
        ("maxMessageSize=", "maxMessageSize is '', which is not a whole number"),
        ("maxMessageSize=9", "maxMessageSize is 9; allowed are 10 to 2147418111"),
        ("mapedFileSizeCommitLog=1", "mapedFileSizeCommitLog is 1; allowed are 128 to 2147483647"),
        ("useABSLock=yes", "useABSLock is 'yes'; allowed are true and false"),
        ("flushDiskType=sync", "flushDiskType is 'sync'; allowed are ASYNC_FLUSH, SYNC_FLUSH"),
        ("brokerIP1=broker-a", "brokerIP1, listenPort is ('broker-a', 10911); allowed are an IP address"),
        ("listenPort=x", "listenPort is 'x', which is not a whole number"),
        ("a=\\u12", "'\\\\u12' has a \\u without four hexadecimal digits"),
    ],
)
def test_values_that_are_not_allowed(text, message):
    with pytest.raises(ValueError, match=rf"^broker.conf: {re.escape(message)}"):
        conf(text)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"broker\.conf"):
        StoreConfig.from_properties(tmp_path / "broker.conf")


def test_switches_in_upper_and_lower_case():
    assert conf("useABSLock = TRUE ").use_abs_lock
    assert not conf("flushCommitLogTimed:False").flush_commit_log_timed


PROPERTIES = {
    "": {},
    "\n \t\f\n# c\n  ! c\n": {},
    "a=1": {"a": "1"},
    "a:1\rb = 2\r\nc 3\n": {"a": "1", "b": "2", "c": "3"},
    "a\t=\f1 ": {"a": "1 "},
    "a = = 1": {"a": "= 1"},
    "a : = 1": {"a": "= 1"},
    "a": {"a": ""},
    "=1": {"": "1"},
    ":\n:": {"": ""},
    "a=1\na=2": {"a": "2"},
    "a=1\\\n   2\\\n\t3": {"a": "123"},
    "a=1\\\r\n2\\\r3": {"a": "123"},
    "a=1\\\\\nb=2": {"a": "1\\", "b": "2"},
    "a=1\\\\\\\nb=2": {"a": "1\\b=2"},
    "a=1\\": {"a": "1"},
    "a=1\\\n": {"a": "1"},
    "a=1\\\n\nb=2": {"a": "1", "b": "2"},
    "a=1\\\n# no comment": {"a": "1# no comment"},
    "# a comment \\\na=1": {"a": "1"},
    "a=1 # no comment ! either": {"a": "1 # no comment ! either"},
    "a\\ b\\=c\\:d=1": {"a b=c:d": "1"},
    "\\#a=1\n\\!b=2": {"#a": "1", "!b": "2"},
    "a=\\t\\n\\r\\f\\q\\\\\\ x": {"a": "\t\n\r\fq\\ x"},
    "\\u0061=\\u00e9\\u4e2D": {"a": "\u00e9\u4e2d"},
    "a=\\ud83d\\ude80": {"a": "\N{ROCKET}"},
    "a=\u00e4\u00ff": {"a": "\u00e4\u00ff"},
    "a=\\\n": {"a": ""},
    "\\\n\\\n  a=1": {"a": "1"},
    "a\\\n  b=1": {"ab": "1"},
    "a\\\n  =1": {"a": "1"},
    "a=\\u0020\\u0020b": {"a": "  b"},
    "a=1\x0b2\x1c3\x85": {"a": "1\x0b2\x1c3\x85"},
}


@pytest.mark.parametrize("text", PROPERTIES)
def test_properties(text):
    assert dict(properties(text)) == PROPERTIES[text]


@pytest.mark.parametrize("text", ["a=\\u", "a=\\u123", "\\u12g4=1", "a=\\uuuu"])
def test_an_incomplete_escape(text):
    with pytest.raises(ValueError, match="without four hexadecimal digits"):
        dict(properties(text))


JAVA = """
import java.io.*; import java.nio.file.*; import java.util.*;
public class Show {
    public static void main(String[] files) throws IOException {
        for (String file : files) {
            Properties found = new Properties();
            try (InputStream in = Files.newInputStream(Path.of(file))) { found.load(in); }
            StringBuilder out = new StringBuilder();
            for (String key : new TreeSet<>(found.stringPropertyNames()))
                for (String text : List.of(key, found.getProperty(key))) {
                    text.chars().forEach(c -> out.append(String.format("%04x", c)));
                    out.append(' ').append(text.isEmpty() ? "-" : "").append(' ');
                }
            System.out.println(out);
        }
    }
}
"""


def test_java_reads_the_same(tmp_path):
    java = shutil.which("java")
    if java is None:
        pytest.skip("there is no java")
    (tmp_path / "Show.java").write_text(JAVA)
    files = [tmp_path / f"{number}.conf" for number in range(len(PROPERTIES))]
    for path, text in zip(files, PROPERTIES, strict=True):
        path.write_bytes(text.encode("iso-8859-1"))
    said = subprocess.run([java, tmp_path / "Show.java", *files], capture_output=True, text=True, check=True).stdout
    assert len(said.splitlines()) == len(files)
    for line, (text, meant) in zip(said.splitlines(), PROPERTIES.items(), strict=True):
        words = ["" if word == "-" else bytes.fromhex(word).decode("utf-16-be") for word in line.split()]
        assert dict(zip(words[::2], words[1::2], strict=True)) == meant, text


# Golden stores


@pytest.mark.parametrize("name", stores.NAMES)
def test_settings_of_the_golden_stores(golden, name):
    store = golden(name)
    made = store.config
    sizes = {path.stat().st_size for path in store.log_files}
    assert sizes == {made.mapped_file_size_commit_log}
    settings = store.about["config"]
    assert made.transient_store_pool_enable is (settings.get("transientStorePoolEnable") == "true")
    assert made.enabled_append_prop_crc is (settings.get("enabledAppendPropCRC") == "true")
