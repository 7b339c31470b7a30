"""Subscriptions and heartbeats are those of RocketMQ's client; tags are compared as text again."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import consumer_parts

from rocketc.broker.heartbeat import decode_heartbeat
from rocketc.client.subscriptions import (
    ConsumerData,
    SubscriptionData,
    encode_client_config,
    encode_heartbeat,
    heartbeat_members,
    subscribe,
)
from rocketc.errors import SubscriptionError
from rocketc.format._encoding import java_hash
from rocketc.remoting.subscribing import ConsumeFromWhere, ConsumeType, MessageModel

FRAMES = Path(__file__).parents[2] / "golden" / "frames-5.3.3.jsonl"


@pytest.mark.parametrize(("asked", "answer"), consumer_parts.recorded("subscribe"))
def test_recorded_subscriptions(asked, answer):
    ours = consumer_parts.subscribed(asked)
    if "error" in answer:
        assert "names no tag" in ours["error"] if asked["type"] == "TAG" else "is empty" in ours["error"]
    else:
        assert consumer_parts.in_order(ours) == consumer_parts.in_order(answer)


def test_a_recorded_heartbeat():
    [(asked, answer)] = consumer_parts.recorded("heartbeat")
    ours = json.loads(consumer_parts.heartbeat(asked))
    assert consumer_parts.in_order(ours) == consumer_parts.in_order(answer)


def test_heartbeats_of_real_clients_byte_for_byte():
    bodies = set()
    for line in FRAMES.read_text().splitlines():
        frame = json.loads(line)
        if frame["request"] == 34 and frame["to_server"] and b"@STREAM" in (raw := base64.b64decode(frame["frame"])):
            bodies.add(raw[raw.index(b'{"clientID"') :])
    assert len(bodies) >= 6
    for body in bodies:
        told = json.loads(body)
        groups = [one["groupName"] for one in told["consumerDataSet"]]
        consumers = [ConsumerData(group, (), ConsumeType.CONSUME_ACTIVELY) for group in groups]
        producers = [one["groupName"] for one in told["producerDataSet"]]
        assert encode_heartbeat(told["clientID"], consumers, producers) == body


def test_text_and_tags():
    one = subscribe("orders", "A || B", sub_version=5)
    assert one == SubscriptionData("orders", "A || B", ("A", "B"), 5, "TAG")
    assert subscribe("orders") == SubscriptionData("orders")
    assert subscribe("orders", "a > 5", "SQL92").members()["subString"] == "a > 5"


def test_two_tags_with_one_hash():
    assert subscribe("orders", "Aa || BB || C").members()["codeSet"] == [java_hash("Aa"), java_hash("C")]


@pytest.mark.parametrize(
    ("expression", "kind", "says"),
    [
        ("||", "TAG", r"the expression '\|\|' of topic orders names no tag"),
        ("||||", None, "names no tag"),
        ("", "SQL92", "the SQL92 expression of topic orders is empty"),
        (None, "OTHER", "the OTHER expression of topic orders is empty"),
    ],
)
def test_wrong_expressions(expression, kind, says):
    with pytest.raises(SubscriptionError, match=says):
        subscribe("orders", expression, kind)


def test_a_later_version():
    one = subscribe("orders", "A || B", sub_version=5)
    assert one.renewed(9) == subscribe("orders", "A || B", sub_version=9)
    assert one.renewed(9).wanted([Pulled("C")]) == []


@dataclass(frozen=True)
class Pulled:
    tags: str | None


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (subscribe("t"), ["Aa", "BB", "b", None, "Aa || BB"]),
        (subscribe("t", "Aa"), ["Aa"]),  # BB has the same hash
        (subscribe("t", "Aa||b"), ["Aa", "b"]),
        (subscribe("t", "|| ||"), ["Aa", "BB", "b", None, "Aa || BB"]),  # as RocketMQ: without tags all are wanted
        (subscribe("t", "a > 5", "SQL92"), ["Aa", "BB", "b", None, "Aa || BB"]),
    ],
)
def test_wanted(one, wanted):
    messages = [Pulled(tag) for tag in ("Aa", "BB", "b", None, "Aa || BB")]
    assert [message.tags for message in one.wanted(messages)] == wanted


def test_our_broker_reads_the_heartbeat():
    group = ConsumerData(
        "audit",
        (subscribe("orders", "new || paid", sub_version=7),),
        ConsumeType.CONSUME_ACTIVELY,
        MessageModel.BROADCASTING,
        ConsumeFromWhere.CONSUME_FROM_MAX_OFFSET,
        unit_mode=True,
    )
    beat = decode_heartbeat(encode_heartbeat("10.0.0.1@7", [group], ["shop", "store"]))
    assert (beat.client_id, beat.producers, beat.is_v2, beat.is_light) == (
        "10.0.0.1@7",
        ("shop", "store"),
        False,
        False,
    )
    [found] = beat.consumers
    assert (found.group, found.unit_mode) == ("audit", True)
    assert found.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert found.message_model is MessageModel.BROADCASTING
    assert found.consume_from_where is ConsumeFromWhere.CONSUME_FROM_MAX_OFFSET
    [wants] = found.subscriptions
    assert (wants.topic, wants.sub_string, wants.tags_set, wants.sub_version) == (
        "orders",
        "new || paid",
        {"new", "paid"},
        7,
    )
    assert wants.code_set == {java_hash("new"), java_hash("paid")}
    assert heartbeat_members([])["consumerDataSet"] == []


def test_a_check_of_an_expression():
    body = json.loads(encode_client_config("10.0.0.1@7", "audit", subscribe("orders", "a > 5", "SQL92")))
    assert (body["clientId"], body["group"]) == ("10.0.0.1@7", "audit")
    assert body["subscriptionData"]["expressionType"] == "SQL92"
