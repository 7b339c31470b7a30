"""Requests as a client with an account sends them."""

import json

from rocketc.remoting.command import Command
from rocketc.remoting.signing import Credentials, Signer


def signed(code, fields=None, body=b"", account="RocketMQ", secret="12345678", **more):
    command = Command(code, dict(fields or {}), body, **more)
    Signer(Credentials(account, secret))(command)
    return command


def send(topic, code=310, group="groupP"):
    values = {
        "producerGroup": group, "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": "UNIQ_KEY\1K1\2",
        "reconsumeTimes": "0", "unitMode": "false", "maxReconsumeTimes": "3", "batch": str(code == 320).lower(),
    }  # fmt: skip
    return values if code == 10 else dict(zip("abcdefghijklm", values.values(), strict=True))


def pull(topic, group, code=11):
    return {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip


def beat(group, *topics):
    subscriptions = [{"topic": topic, "subString": "*", "subVersion": 1} for topic in topics]
    consumer = {"groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": subscriptions}
    return json.dumps({"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []}).encode()
