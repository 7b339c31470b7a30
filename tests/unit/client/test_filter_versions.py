"""SQL92 subscriptions at brokers that are too old, do not answer, or refuse them; on virtual time."""

import asyncio

import pytest
from unit.client.scripted import play
from unit.client.scripted_push import PushCluster

from rocketc.client.subscriptions import check_filter_version, subscribe
from rocketc.errors import AnswerError
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer

CHECK = CODES["CHECK_CLIENT_CONFIG"]
SQL = subscribe("orders", "a > 5", "SQL92")
TOO_OLD = "this broker does not know the SQL92 expression of topic orders: update it to 4.1.0 or later, or use tags"


def cluster(*names, answer=None):
    stage = PushCluster(*names)
    for broker in stage.brokers.values():
        broker.answers[CHECK] = Answer() if answer is None else answer
    return stage


async def start(stage, version=None, subscription=SQL):
    core = stage.consumer()
    await core.subscribe(subscription, print)
    if version is not None:
        core._instance.heartbeats.versions = Versions(version)
    try:
        await core.start()
        await asyncio.sleep(5)
    finally:
        await core.close()


class Versions(dict):
    """Each broker has the same version."""

    def __init__(self, version):
        super().__init__()
        self._version = version

    def __setitem__(self, address, version):
        super().__setitem__(address, self._version)


@pytest.mark.parametrize(("version", "is_known"), [(231, False), (232, True), (479, True), (None, True), (0, False)])
def test_versions(version, is_known):
    check_filter_version(subscribe("orders", "a"), "a:1", version)
    if is_known:
        check_filter_version(SQL, "a:1", version)
    else:
        with pytest.raises(AnswerError, match=TOO_OLD) as caught:
            check_filter_version(SQL, "a:1", version)
        assert (caught.value.address, caught.value.code) == ("a:1", Code.REQUEST_CODE_NOT_SUPPORTED)


def test_an_old_broker_ends_the_start():
    stage = cluster("a")

    async def main():
        await start(stage, version=200, subscription=subscribe("orders", "a || b"))
        with pytest.raises(AnswerError, match=TOO_OLD):
            await start(stage, version=200)
        assert stage.brokers["a"].count(CHECK) == 0

    play(main())


def test_a_broker_that_does_not_know_the_question():
    stage = cluster("a", answer=Answer(Code.REQUEST_CODE_NOT_SUPPORTED))

    async def main():
        with pytest.raises(AnswerError, match=TOO_OLD):
            await start(stage)

    play(main())


def test_a_broker_that_refuses():
    stage = cluster("a", answer=Answer(Code.SYSTEM_ERROR, remark="The broker does not support consumer to filter"))

    async def main():
        with pytest.raises(AnswerError, match="The broker does not support consumer to filter"):
            await start(stage)

    play(main())


def test_each_broker_of_the_topic_is_asked():
    stage = cluster("a", "b")
    stage.brokers["b"].answers[CHECK] = Answer(Code.SUBSCRIPTION_PARSE_FAILED, remark="no")

    async def main():
        with pytest.raises(AnswerError, match=r"10\.0\.1\.1:10911: CHECK_CLIENT_CONFIG was answered with 23"):
            await start(stage)
        stage.servers.pop(stage.address("b"))  # a broker that is away does not hold up the others
        await start(stage)

    play(main())


def test_a_later_subscription_changes_nothing_if_it_is_refused():
    stage = cluster("a")

    async def main():
        core = stage.consumer()
        await core.subscribe(subscribe("parcels"), print)
        await core.start()
        stage.brokers["a"].answers[CHECK] = Answer(Code.SUBSCRIPTION_PARSE_FAILED, remark="no")
        with pytest.raises(AnswerError):
            await core.subscribe(SQL, print)
        assert "orders" not in core._member.subscriptions and "orders" not in core._instance.routes._watched
        await core.close()

    play(main())


def test_a_broker_that_becomes_older(caplog):
    """It was replaced by an older release: its queues are not pulled, and a warning says why."""

    async def main():
        stage = cluster("a")
        core = stage.consumer()
        await core.subscribe(SQL, print)
        await core.start()
        for address in core._instance.heartbeats.versions:
            core._instance.heartbeats.versions[address] = 200
        await asyncio.sleep(3)
        before = stage.brokers["a"].count(CODES["PULL_MESSAGE"])
        await asyncio.sleep(5)
        pulls = [c for c in stage.brokers["a"].asked[:] if c.command.code == CODES["PULL_MESSAGE"]]
        assert [c.values["topic"] for c in pulls[before:] if c.values["topic"] == "orders"] == []
        await core.close()

    play(main())
    assert "a pull of orders queue 0 on a failed" in caplog.text and TOO_OLD in caplog.text
