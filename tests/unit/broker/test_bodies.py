"""JSON bodies: what is read, the exact limits, what is refused. Heartbeats at their limits."""

import json

import pytest

from rocketc.broker import bodies
from rocketc.broker.bodies import BODY_MOST, INTS, LONGS
from rocketc.broker.heartbeat import GROUPS_MOST, SUBSCRIPTIONS_MOST, ConsumerData, Heartbeat, decode_heartbeat
from rocketc.errors import BadRequestError
from rocketc.remoting.subscribing import ConsumeFromWhere, ConsumeType, MessageModel


def test_bodies():
    assert bodies.parse_body(b"") is None
    assert bodies.parse_body(b'{"a":"x\ty"}') == {"a": "x\ty"}  # fastjson accepts control characters
    assert bodies.parse_body(b'"' + b"x" * (BODY_MOST - 2) + b'"') == "x" * (BODY_MOST - 2)
    with pytest.raises(BadRequestError, match="the body has 1048577 bytes; 1048576 at most"):
        bodies.parse_body(b" " * (BODY_MOST + 1))
    for lax in (b'{"a":[1,],}', b'{"a":[1, ]\n,\n}'):  # fastjson accepts a comma before the end
        assert bodies.parse_body(lax) == {"a": [1]}
    for wrong in (
        b"{,}",
        b"[1,,]",
        b"{'a':1}",
        b"{a:1}",
        b"{}/**/",
        b"{",
        b"NaN",
        b"Infinity",
        b"\xff",
        b"[" * 10_000,
        b"1" * 5000,
        b"{} {}",
        b"\xef\xbb\xbf{}",
    ):
        with pytest.raises(BadRequestError, match="the body is not JSON, or nested too deep"):
            bodies.parse_body(wrong)


def test_texts():
    assert bodies.text_of({"a": "xyz"}, "a", 3) == "xyz" and bodies.text_of({"a": None}, "a", 3) == ""
    assert bodies.texts_of({"a": ["x"] * 3}, "a", 1, 3) == ["x"] * 3 and bodies.texts_of({}, "a", 1, 3) == []
    assert bodies.texts_of({"a": [5, True, 1.5]}, "a", 4, 3) == ["5", "true", "1.5"]
    for wrong in ("wxyz", 5000, ["x"], {}, "\ud800"):
        with pytest.raises(BadRequestError, match="the member a "):
            bodies.text_of({"a": wrong}, "a", 3)
        with pytest.raises(BadRequestError, match="the member a "):
            bodies.texts_of({"a": [wrong]}, "a", 3, 9)


@pytest.mark.parametrize("number", [0, -1, INTS[0], INTS[-1], LONGS[0], LONGS[-1]])
def test_numbers(number):
    for value in (number, str(number)):
        assert bodies.number_of({"a": value}, "a", LONGS) == number
        assert bodies.numbers_of({"a": [value]}, "a", 1, LONGS) == [number]
        if number not in INTS:
            with pytest.raises(BadRequestError, match="allowed range"):
                bodies.number_of({"a": value}, "a")


def test_numbers_that_fastjson_reads():
    for value, number in ((1.9, 1), (-1.9, -1), (True, 1), ("+7", 7), ("007", 7), ("", 0), ("null", 0), (None, 0)):
        assert bodies.number_of({"a": value}, "a", LONGS) == number
    assert bodies.number_of({"a": ""}, "a", missing=5) == bodies.number_of({}, "a", missing=5) == 5


@pytest.mark.parametrize("wrong", ["-", "--1", " 1", "1.0", "1,000", "٣", "9" * 5000, "9" * 19, [], 1 << 63, 1e300])
def test_wrong_numbers(wrong):
    with pytest.raises(BadRequestError, match="the member a is not a whole number"):
        bodies.number_of({"a": wrong}, "a", LONGS)


def test_flags():
    true, false = (True, "TRUE", 1, 1.0, "1", "Y", "T"), (False, "false", None, 0, 2, "0", "N", "F", "", "null")
    for value, flag in (*((one, True) for one in true), *((one, False) for one in false)):
        assert bodies.flag_of({"a": value}, "a") is flag
    assert bodies.flag_of({}, "a") is False
    for wrong in ("yes", "2", []):
        with pytest.raises(BadRequestError, match="neither true nor false"):
            bodies.flag_of({"a": wrong}, "a")


def test_lists():
    assert bodies.list_of({"a": [1, 2]}, "a", 2) == [1, 2] and bodies.list_of({"a": None}, "a", 2) == []
    with pytest.raises(BadRequestError, match="the member a has 3 elements; 2 at most"):
        bodies.list_of({"a": [1, 2, 3]}, "a", 2)
    for wrong in ({}, "ab", 5):
        with pytest.raises(BadRequestError, match="the member a is not a list"):
            bodies.list_of({"a": wrong}, "a", 2)


# heartbeats


def beat(consumers=(), producers=(), **others):
    return json.dumps({"clientID": "c", "consumerDataSet": consumers, "producerDataSet": producers} | others).encode()


def test_the_smallest_heartbeats():
    assert decode_heartbeat(b"{}") == Heartbeat("")
    found = decode_heartbeat(beat([{"groupName": "g"}]))
    assert found.consumers == (ConsumerData("g", None, None, None, (), False),)
    assert not (found.is_v2 or found.is_light or found.without_sub)


ENUMS = {"consumeType": ConsumeType, "messageModel": MessageModel, "consumeFromWhere": ConsumeFromWhere}


@pytest.mark.parametrize("name", ENUMS)
def test_enums_by_name_and_by_number(name):
    def decoded(value):
        (found,) = decode_heartbeat(beat([{"groupName": "g", name: value}])).consumers
        return {
            "consumeType": found.consume_type,
            "messageModel": found.message_model,
            "consumeFromWhere": found.consume_from_where,
        }[name]

    for number, one in enumerate(ENUMS[name]):
        assert decoded(one.name) is decoded(one.name.lower()) is decoded(number) is one
    assert decoded(None) is decoded("UNKNOWN") is decoded("1") is None
    for wrong in (-1, len(ENUMS[name]), 1.0, True, [], {}):
        with pytest.raises(BadRequestError, match=f"the member {name} is neither a name nor one of the numbers 0 to "):
            decoded(wrong)


def test_the_numbers_of_enums_are_those_of_java():
    assert [one.name for one in ConsumeType] == ["CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"]
    assert [one.name for one in MessageModel] == ["BROADCASTING", "CLUSTERING"]
    assert list(ConsumeFromWhere)[4] is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert list(ConsumeFromWhere)[5] is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


def test_a_subscription_without_a_version_is_a_new_one():
    body = beat([{"groupName": "g", "subscriptionDataSet": [{"topic": "t"}, {"topic": "u", "subVersion": "7"}]}])
    (found,) = decode_heartbeat(body, now_ms=123).consumers
    assert [one.sub_version for one in found.subscriptions] == [123, 7]


@pytest.mark.parametrize("kind", ["consumerDataSet", "producerDataSet"])
def test_groups_need_a_client_id(kind):
    for client in (None, ""):
        with pytest.raises(BadRequestError, match="the heartbeat lacks the member clientID"):
            decode_heartbeat(json.dumps({"clientID": client, kind: [{"groupName": "g"}]}).encode())


@pytest.mark.parametrize("fingerprint, without_sub, is_light", [(0, True, False), (5, False, False), (-5, True, True)])
def test_light_heartbeats(fingerprint, without_sub, is_light):
    found = decode_heartbeat(beat(heartbeatFingerprint=fingerprint, withoutSub=without_sub))
    assert found.is_light is is_light and found.is_v2 is (fingerprint != 0)


def test_the_limits_of_heartbeats():
    groups = [{"groupName": f"g{n}"} for n in range(GROUPS_MOST)]
    found = decode_heartbeat(beat(groups, groups))
    assert len(found.consumers) == len(found.producers) == GROUPS_MOST
    for body in (beat([*groups, *groups[:1]]), beat([], [*groups, *groups[:1]])):
        with pytest.raises(BadRequestError, match="has 1001 elements; 1000 at most"):
            decode_heartbeat(body)
    half = [{"topic": "t"}] * (SUBSCRIPTIONS_MOST // 2)
    consumers = [{"groupName": "g", "subscriptionDataSet": half}] * 2
    assert sum(len(one.subscriptions) for one in decode_heartbeat(beat(consumers)).consumers) == SUBSCRIPTIONS_MOST
    with pytest.raises(BadRequestError, match="the heartbeat has 5001 subscriptions; 5000 at most"):
        decode_heartbeat(beat([*consumers, {"groupName": "g", "subscriptionDataSet": half[:1]}]))
