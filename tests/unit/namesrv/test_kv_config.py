"""Key-value settings and kvConfig.json."""

import json
import logging

import pytest

from rocketc.errors import StoreIOError
from rocketc.namesrv import kv_config
from rocketc.namesrv.kv_config import KvConfig


@pytest.fixture
def path(tmp_path):
    return tmp_path / "namesrv" / "kvConfig.json"


def test_in_memory_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = KvConfig("")
    assert settings.get("n", "k") is None and settings.namespace("n") is None
    settings.put("n", "k", "v")
    settings.put("n", "k2", "v2")
    assert settings.get("n", "k") == "v" and settings.namespace("n") == {"k": "v", "k2": "v2"}
    settings.delete("n", "k")
    settings.delete("n", "k2")
    settings.delete("n", "k2")
    settings.delete("no", "k")
    assert settings.namespace("n") == {} and settings.namespace("no") is None
    assert not list(tmp_path.iterdir())


def test_the_file_is_that_of_rocketmq(path):
    """The file that a name server of 5.3.3 wrote after the same requests."""
    settings = KvConfig(path)
    assert not path.parent.exists()  # a name server without settings writes none
    settings.put("NS", "k", "v")
    settings.put("ORDER_TOPIC_CONFIG", "orders", "a:4")
    settings.delete("NS", "k")
    assert path.read_bytes() == b'{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"a:4"},"NS":{}}}'
    settings.put("", "", "")
    assert path.read_bytes() == b'{"configTable":{"":{"":""},"ORDER_TOPIC_CONFIG":{"orders":"a:4"},"NS":{}}}'
    assert path.with_name("kvConfig.json.bak").read_bytes() == (
        b'{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"a:4"},"NS":{}}}'
    )
    again = KvConfig(path)
    assert again.get("ORDER_TOPIC_CONFIG", "orders") == "a:4" and again.namespace("NS") == {}


def test_a_damaged_file_is_read_from_its_copy(path, caplog):
    settings = KvConfig(path)
    settings.put("n", "k", "old")
    settings.put("n", "k", "new")
    path.write_text("{")
    assert KvConfig(path).get("n", "k") == "old"
    assert "kvConfig.json.bak was read instead" in caplog.text


def test_two_damaged_files_are_read_as_empty(path, caplog):
    path.parent.mkdir()
    path.write_text("[]")
    with caplog.at_level(logging.WARNING):
        assert KvConfig(path).namespace("n") is None
    assert "the key-value settings are read as empty" in caplog.text
    KvConfig(path).put("n", "k", "v")
    assert path.with_name("kvConfig.json.bak").read_text() == "[]"


@pytest.mark.parametrize(
    "table",
    [{}, {"configTable": None}, {"configTable": 5}, {"configTable": {"n": 5}}, {"configTable": {"n": {"k": None}}}],
)
def test_a_file_with_other_types(path, table):
    path.parent.mkdir()
    path.write_text(json.dumps(table))
    assert KvConfig(path).get("n", "k") is None


def test_values_that_are_numbers(path):
    path.parent.mkdir()
    path.write_text('{"configTable":{"n":{"k":5,6:"v"}}}')
    assert KvConfig(path).namespace("n") == {"k": "5", "6": "v"}


def test_a_file_that_cannot_be_read(path):
    path.mkdir(parents=True)
    with pytest.raises(StoreIOError):
        KvConfig(path)


def test_a_change_that_is_not_written_changes_nothing(path, monkeypatch):
    settings = KvConfig(path)
    settings.put("n", "k", "v")

    def fail(*args, **more):
        raise StoreIOError(28, "No space left on device", str(path))

    monkeypatch.setattr(kv_config, "write_table", fail)
    for change in (
        lambda: settings.put("n", "k", "new"),
        lambda: settings.put("m", "k", "v"),
        lambda: settings.delete("n", "k"),
    ):
        with pytest.raises(StoreIOError):
            change()
    assert settings.namespace("n") == {"k": "v"} and settings.namespace("m") is None


def test_a_table_that_is_too_large(path):
    settings = KvConfig(path)
    with pytest.raises(ValueError, match="would have more than 4194304 bytes"):
        settings.put("n", "k", "x" * (4 << 20))
    assert settings.namespace("n") is None and not path.exists()


def test_the_bytes_of_all_settings_are_limited(monkeypatch):
    """Also those of namespaces without settings, which stay."""
    monkeypatch.setattr(kv_config, "KV_BYTES_MOST", 20)
    settings = KvConfig("")
    settings.put("ns1", "key", "订" * 4)  # 18 bytes
    settings.put("ns1", "key", "订" * 3 + "12345")
    for wrong in (("ns1", "key", "订" * 4 + "123"), ("ns1", "k", ""), ("n", "", "")):
        with pytest.raises(ValueError, match="more than 20 bytes; delete some"):
            settings.put(*wrong)
    settings.delete("ns1", "key")
    for namespace in ("four", "five5", "sixsix"):
        settings.put(namespace, "", "")
        settings.delete(namespace, "")
    with pytest.raises(ValueError, match="more than 20 bytes"):
        settings.put("seven77", "", "")


def test_the_number_of_settings_is_limited(monkeypatch):
    monkeypatch.setattr(kv_config, "VALUES_MOST", 4)
    settings = KvConfig("")
    for key in "abc":
        settings.put("ns", key, "")  # three, and the namespace
    for wrong in (("ns", "d"), ("other", "a")):
        with pytest.raises(ValueError, match="more than 4 key-value settings and namespaces"):
            settings.put(*wrong, "")
    settings.put("ns", "a", "new")
    settings.delete("ns", "a")
    settings.put("ns", "d", "")


def test_a_file_with_more_than_the_limits_can_become_smaller(path, monkeypatch):
    KvConfig(path).put("ns", "key", "x" * 100)
    monkeypatch.setattr(kv_config, "KV_BYTES_MOST", 50)
    settings = KvConfig(path)
    settings.put("ns", "key", "x" * 99)
    with pytest.raises(ValueError, match="more than 50 bytes"):
        settings.put("ns", "key", "x" * 100)
