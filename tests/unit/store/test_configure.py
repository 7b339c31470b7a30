"""MessageStore.configure(): settings that change while a store is open."""

import pytest

import rocketc
from rocketc.errors import ClosedError, IllegalMessageError
from rocketc.store.cleaning import CHANGEABLE


def opened(tmp_path, **fields):
    return rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 12, background=False, **fields)


def test_the_next_cleaning_uses_the_new_settings(tmp_path):
    with opened(tmp_path, clock=lambda: 1_700_000_000_000 + 100 * 3_600_000) as store:
        store.put_many("orders", [bytes(1000)] * 20)
        files = len(list((tmp_path / "commitlog").iterdir()))
        store.configure(file_reserved_time=1_000_000)
        assert store.clean().log_files == 0 and files > 3
        store.configure(file_reserved_time=0, delete_file_batch_max=2)
        assert store.clean(now=1 << 50).log_files == 2
        store.configure(delete_file_batch_max=10)
        assert store.clean(now=1 << 50).log_files == min(files - 3, 10)


def test_new_topics_follow_the_new_settings(tmp_path):
    with opened(tmp_path) as store:
        store.create_topic("orders")
        store.configure(auto_create_topic_enable=False)
        with pytest.raises(IllegalMessageError, match="auto_create_topic_enable is off"):
            store.put("other", b"x")
        store.configure(auto_create_topic_enable=True, default_topic_queue_nums=2)
        assert store.put("other", b"x").status.name == "PUT_OK" and store.topics()["other"].write_queue_nums == 2


def test_other_fields_and_wrong_values_change_nothing(tmp_path):
    with opened(tmp_path) as store:
        before = store.config
        for fields, error in (
            ({"flush_disk_type": "SYNC_FLUSH"}, TypeError),
            ({"nothing": 1}, TypeError),
            ({"file_reserved_time": 48, "max_message_size": 1}, TypeError),
            ({"file_reserved_time": "x"}, ValueError),
            ({"delete_when": "77"}, ValueError),
        ):
            with pytest.raises(error):
                store.configure(**fields)
        assert store.config == before
        store.configure(**{name: getattr(before, name) for name in CHANGEABLE})
        assert store.config == before


def test_a_closed_store_and_one_for_reading_refuse_it(tmp_path):
    with opened(tmp_path) as store:
        store.put("orders", b"x")
    with pytest.raises(ClosedError):
        store.configure(file_reserved_time=48)
    with rocketc.open(tmp_path, read_only=True) as reader, pytest.raises(Exception, match="read"):
        reader.configure(file_reserved_time=48)
