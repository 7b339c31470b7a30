"""A broker whose disk fills up: sends are refused, consuming continues, and sends continue when there is room."""

import functools
import types

import pytest
from interop.asking import Asking

import rocketc
from rocketc.broker.config import read_broker_conf
from rocketc.remoting.codes import Code
from rocketc.store import cleaning
from rocketc.store.disk_usage import look

pytestmark = pytest.mark.promise(14)

SEND = {
    "a": "shop", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0, "k": False,
    "l": 0, "m": False,
}  # fmt: skip
PULL = {
    "consumerGroup": "billing", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
    "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
}  # fmt: skip


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_disk_above_the_warning_level(tmp_path, monkeypatch, flush, caplog):
    with rocketc.Broker(
        tmp_path, flush=flush, disk_space_warning_level_ratio=80, disk_space_clean_forcibly_ratio=70
    ) as broker:
        broker.topics.create("orders")
        asking = Asking(broker.address)
        assert asking.ask("SEND_MESSAGE_V2", b"first", **SEND)[0] == Code.SUCCESS
        broker.store.wait_dispatched()
        for percent, expected in (
            (85, Code.SERVICE_NOT_AVAILABLE),
            (75, Code.SERVICE_NOT_AVAILABLE),  # between the two levels nothing changes
            (60, Code.SUCCESS),
        ):
            free = 1000 - 10 * percent
            disk = types.SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bfree=free, f_bavail=free)
            monkeypatch.setattr(cleaning, "look", functools.partial(_look, disk))
            broker.store.clean(asked=False)
            assert asking.ask("SEND_MESSAGE_V2", b"more", **SEND)[0] == expected
            code, _, body = asking.ask("PULL_MESSAGE", **PULL)
            assert code == Code.SUCCESS and b"first" in body
        asking.close()
    [line] = [one.getMessage() for one in caplog.records if one.name == "rocketc.broker"]
    assert "messages refused since the last such line: 1; service not available now: the broker's disk is full" in line


def _look(disk, *args, statvfs, **options):
    return look(*args, statvfs=lambda path: disk, **options)


def test_a_broker_deletes_expired_messages_unless_its_store_is_temporary(tmp_path):
    """A store that a program opens does not: its owner may keep it as an archive."""
    for path, given, interval in (
        (tmp_path / "kept", {}, 10_000),
        (tmp_path / "given", {"clean_resource_interval": 500}, 500),
        (tmp_path / "never", {"clean_resource_interval": 0}, 0),
        (None, {}, 0),
    ):
        with rocketc.Broker(path, **given) as broker:
            assert broker.store.config.clean_resource_interval == interval
    conf = tmp_path / "broker.conf"
    for text, interval in (("", 10_000), ("cleanResourceInterval=700", 700)):
        conf.write_text(text)
        assert read_broker_conf(conf)[1].clean_resource_interval == interval
