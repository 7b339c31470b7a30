"""Message trace: the records that the encoders of RocketMQ 4.9.7 and 5.3.3 write, and other bytes."""

import pytest

from rocketc.format.traces import decode_traces, trace_lines

# What TraceDataEncoder made of a context with all fields set, with | for U+0001 and # for U+0002. Both releases agree;
# 4.9.7 does not have Recall.
WRITTEN = {
    "Pub|1700000000000|REGION|GROUP|TOPIC|MSGID|TAGS|KEYS|STOREHOST|66|77|3|OFFID|true#": {
        "type": "Pub", "timestamp": 1700000000000, "regionId": "REGION", "group": "GROUP", "topic": "TOPIC",
        "msgId": "MSGID", "tags": "TAGS", "keys": "KEYS", "storeHost": "STOREHOST", "bodyLength": 66, "costTime": 77,
        "msgType": "Delay_Msg", "offsetMsgId": "OFFID", "success": True,
    },
    "Recall|1700000000000|REGION|GROUP|TOPIC|MSGID|true#": {
        "type": "Recall", "timestamp": 1700000000000, "regionId": "REGION", "group": "GROUP", "topic": "TOPIC",
        "msgId": "MSGID", "success": True,
    },
    "SubBefore|1700000000000|REGION|GROUP|REQ|MSGID|5|KEYS#": {
        "type": "SubBefore", "timestamp": 1700000000000, "regionId": "REGION", "group": "GROUP", "requestId": "REQ",
        "msgId": "MSGID", "retryTimes": 5, "keys": "KEYS",
    },
    "SubAfter|REQ|MSGID|77|true|KEYS|3|1700000000000|GROUP#": {
        "type": "SubAfter", "requestId": "REQ", "msgId": "MSGID", "costTime": 77, "success": True, "keys": "KEYS",
        "contextCode": "RETURNNULL", "timestamp": 1700000000000, "group": "GROUP",
    },
    "EndTransaction|1700000000000|REGION|GROUP|TOPIC|MSGID|TAGS|KEYS|STOREHOST|3|TXID|COMMIT_MESSAGE|true#": {
        "type": "EndTransaction", "timestamp": 1700000000000, "regionId": "REGION", "group": "GROUP", "topic": "TOPIC",
        "msgId": "MSGID", "tags": "TAGS", "keys": "KEYS", "storeHost": "STOREHOST", "msgType": "Delay_Msg",
        "transactionId": "TXID", "transactionState": "COMMIT_MESSAGE", "fromTransactionCheck": True,
    },
}  # fmt: skip


def encoded(text):
    return text.replace("|", "\x01").replace("#", "\x02").encode()


@pytest.mark.parametrize("text", WRITTEN)
def test_records_of_rocketmq(text):
    assert decode_traces(encoded(text)) == [WRITTEN[text]]


def test_a_body_with_several_records():
    assert decode_traces(encoded("".join(WRITTEN))) == list(WRITTEN.values())


@pytest.mark.parametrize(
    ("text", "records"),
    [
        ("", []),
        ("#", []),
        ("no trace", [{"type": "no trace"}]),
        ("Odd|a||b#", [{"type": "Odd", "more": ["a", "", "b"]}]),
        ("SubBefore|soon|||||many|#", [{"type": "SubBefore", "timestamp": "soon", "retryTimes": "many"}]),
        ("Recall|1|r|g|t|m|perhaps|a|b#", [{"type": "Recall", "timestamp": 1, "regionId": "r", "group": "g",
                                            "topic": "t", "msgId": "m", "success": "perhaps", "more": ["a", "b"]}]),
        ("Recall|" + "9" * 30 + "#", [{"type": "Recall", "timestamp": "9" * 30}]),
        ("Recall|²#", [{"type": "Recall", "timestamp": "²"}]),
        ("Pub|||||||||||99#", [{"type": "Pub", "msgType": 99}]),
        ("SubAfter||||||99#", [{"type": "SubAfter", "contextCode": 99}]),
        ("Pub|1", [{"type": "Pub", "timestamp": 1}]),  # the end is missing
    ],
)  # fmt: skip
def test_records_that_rocketmq_does_not_write(text, records):
    assert decode_traces(encoded(text)) == records


def test_bytes_that_are_not_utf_8():
    assert decode_traces(b"Pub\x01\xff\x02") == [{"type": "Pub", "timestamp": "\\xff"}]


def test_a_record_as_text():
    text = "SubAfter|REQ|MSGID|77|false|a b|1|1700000000000|GROUP|left#"
    shown = "requestId=REQ msgId=MSGID costTime=77 success=false keys=a b contextCode=TIME_OUT"
    assert trace_lines(encoded(text)) == [f"SubAfter {shown} timestamp=1700000000000 group=GROUP left"]
