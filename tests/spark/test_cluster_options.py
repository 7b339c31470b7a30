"""The options of format("rocketmq") for a cluster, without Spark."""

import pickle
from collections.abc import Mapping

import pytest

from rocketc.client.security import Credentials, Tls
from rocketc.spark.cluster_offsets import Bounds, QueueName, bounds_of
from rocketc.spark.cluster_options import Cluster, cluster_of
from rocketc.spark.options import Options, Use, check_use, parse_options

NAME = "127.0.0.1:9876"
OF_READ = (
    "columns, includeHeaders, assign, subscribe, subscribePattern, tags, keys, sql, startingTimestamp, "
    "endingTimestamp, verifyCrc, decompress, endingOffsets, mode, droppedAccumulator, filterPushdown, "
    "failOnMissingTopic, minPartitions, startingOffsets, failOnDataLoss, nameServer, consumerGroup, accessKey, "
    "secretKey, securityToken, tls, tlsCa, tlsCert, tlsKey, tlsKeyPassword, tlsAnyHost"
)
OF_STREAM = "maxBytesPerTrigger, maxOffsetsPerTrigger"
OF_WRITE = (
    "nameServer, producerGroup, accessKey, secretKey, securityToken, tls, tlsCa, tlsCert, tlsKey, tlsKeyPassword, "
    "tlsAnyHost, topic, idColumn"
)


def parsed(writing: bool = False, **given: str) -> Options:
    return parse_options({"nameServer": NAME, **({} if writing else {"subscribe": "orders"}), **given}, writing)


@pytest.fixture(autouse=True)
def no_secrets_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETC_SECRET_KEY", raising=False)
    monkeypatch.delenv("ROCKETC_TLS_KEY_PASSWORD", raising=False)


@pytest.mark.parametrize(
    ("given", "cluster"),
    [
        ({}, Cluster(NAME)),
        ({"nameserver": " a:1;b:2 "}, Cluster("a:1;b:2")),
        ({"consumerGroup": "billing"}, Cluster(NAME, consumer_group="billing")),
        ({"ACCESSKEY": "me", "secretkey": "it"}, Cluster(NAME, Credentials("me", "it"))),
        ({"accessKey": "a", "secretKey": "b", "securityToken": "c"}, Cluster(NAME, Credentials("a", "b", "c"))),
        ({"tls": "true"}, Cluster(NAME, tls=Tls())),
        ({"tls": "FALSE"}, Cluster(NAME)),
        ({"tlsAnyHost": "true"}, Cluster(NAME, tls=Tls(check_host=False))),
    ],
)
def test_options_of_a_cluster(given: Mapping[str, str], cluster: Cluster) -> None:
    name = {} if "nameserver" in given else {"nameServer": NAME}
    options = parse_options({**name, "subscribe": "orders", **given})
    assert options.cluster == cluster
    assert options.paths == ()
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options.cluster) == hash(cluster)


def test_a_producer_group_is_for_writing() -> None:
    assert parsed(writing=True, producerGroup="shop").cluster == Cluster(NAME, producer_group="shop")


def test_secrets_are_in_no_text() -> None:
    options = parsed(
        accessKey="me", secretKey="hidden-1", securityToken="hidden-2", tls="true", tlsKeyPassword="hidden-3"
    )
    assert "hidden" not in repr(options) + str(options)
    for given in (
        {"secretKey": "hidden"},
        {"accessKey": "", "secretKey": "hidden"},
        {"securityToken": "hidden"},
        {"accessKey": "me", "secretKye": "hidden"},
        {"tls": "false", "tlsKeyPassword": "hidden"},
        {"accessKey": "me", "secretKey": "hidden", "consumerGroup": "a b"},
    ):
        with pytest.raises(ValueError, match=r"^rocketmq: ") as caught:
            parsed(**given)
        assert "hidden" not in str(caught.value)


def test_secrets_may_come_from_the_environment() -> None:
    values = {"nameServer": NAME, "accessKey": "me"}
    cluster = cluster_of(values, {"ROCKETC_SECRET_KEY": "it"})
    assert cluster == Cluster(NAME, Credentials("me", "it"))
    tls = cluster_of({"nameServer": NAME, "tls": "true"}, {"ROCKETC_TLS_KEY_PASSWORD": "it"})
    assert tls is not None
    assert isinstance(tls.tls, Tls)
    assert tls.tls.key_password == "it"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"nameServer": ""}, "option nameServer='': "),
        ({"nameServer": "http://"}, "option nameServer='http://': "),
        ({"consumerGroup": "a b"}, "option consumerGroup='a b': "),
        ({"consumerGroup": "DEFAULT_CONSUMER"}, "option consumerGroup='DEFAULT_CONSUMER': .*choose another"),
        ({"producerGroup": "DEFAULT_PRODUCER"}, "option producerGroup='DEFAULT_PRODUCER': .*choose another"),
        ({"accessKey": "me"}, "option accessKey: it needs the option secretKey, or .*ROCKETC_SECRET_KEY"),
        ({"secretKey": "x"}, "option secretKey: give accessKey and secretKey"),
        ({"tls": "yes"}, "option tls='yes': it must be one of true, false"),
        ({"tlsAnyHost": "1"}, "option tlsAnyHost='1': it must be one of true, false"),
        ({"tls": "false", "tlsCa": "ca.pem"}, "options tls=false and tlsCa: give one of them"),
        ({"tlsCa": "nowhere.pem"}, "option tlsCa: nowhere.pem: "),
        ({"tlsKey": "key.pem"}, "option tlsKey: key.pem: give the certificate of this key, too"),
        ({"path": "store"}, "options nameServer and path: give one of them"),
        ({"paths": "[]"}, "options nameServer and paths: give one of them"),
        ({"partial": "true"}, "option partial: not with nameServer; a read takes columns, "),
        ({"maxBytesPerPartition": "1m"}, "option maxBytesPerPartition: not with nameServer; "),
        ({"maxFilesPerTrigger": "1"}, "option maxFilesPerTrigger: not with nameServer; "),
        ({"mappedFileSizeCommitLog": "1m"}, "option mappedFileSizeCommitLog: not with nameServer; "),
        ({"storage.key": "x"}, "option storage.key: not with nameServer; "),
        ({"mode": "permissive"}, "option mode='permissive': not with nameServer; use FAILFAST or DROPMALFORMED"),
        ({"assign": "{}"}, "options subscribe and assign: give one of them"),
        ({"nameSever": "x"}, r"unknown option nameSever \(did you mean nameServer\?\); a read takes columns, "),
        ({"secretKye": "x"}, r"unknown option secretKye \(did you mean secretKey\?\); a read takes columns, "),
    ],
)
def test_wrong_options_of_a_cluster(given: Mapping[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=f"^rocketmq: {why}"):
        parsed(**given)


def test_a_cluster_needs_topics() -> None:
    with pytest.raises(ValueError, match=r"^rocketmq: option subscribe: missing; with nameServer, give subscribe, "):
        check_use(parse_options({"nameServer": NAME}), "read")
    with pytest.raises(ValueError, match=r"^rocketmq: option topic: only for writing with nameServer; to read, use "):
        check_use(parse_options({"path": "store", "topic": "orders"}), "read")


@pytest.mark.parametrize("name", ["accessKey", "secretKey", "tls", "tlsCa", "consumerGroup", "producerGroup"])
def test_options_of_a_cluster_need_its_name_server(name: str) -> None:
    with pytest.raises(ValueError, match=f"^rocketmq: option {name}: only for a cluster; give nameServer, too$"):
        parse_options({"path": "store", name: "x"})


def test_a_name_near_to_one_of_a_cluster_is_suggested_for_files_too() -> None:
    with pytest.raises(ValueError, match=r"unknown option nameSrv \(did you mean nameServer\?\); a read takes path, "):
        parse_options({"path": "store", "nameSrv": NAME})


@pytest.mark.parametrize(
    ("use", "name", "value", "error"),
    [
        ("read", "maxOffsetsPerTrigger", "9", "maxOffsetsPerTrigger: only for streams (spark.readStream)"),
        ("read", "producerGroup", "g", "producerGroup is for writing"),
        ("stream", "endingOffsets", "latest", "endingOffsets: not for streams, which do not end"),
        ("write", "consumerGroup", "g", "consumerGroup is for reading"),
    ],
)
def test_an_option_of_another_use(use: Use, name: str, value: str, error: str) -> None:
    left_out = {"endingOffsets", "filterPushdown", "failOnDataLoss"}
    of_stream = ", ".join(one for one in OF_READ.split(", ") if one not in left_out)
    of_stream = of_stream.replace("startingOffsets", f"startingOffsets, {OF_STREAM}, failOnDataLoss")
    takes = {"read": OF_READ, "stream": of_stream, "write": OF_WRITE}
    with pytest.raises(ValueError) as caught:
        check_use(parsed(writing=use == "write", **{name: value}), use)
    assert str(caught.value) == f"rocketmq: option {error}; a {use} takes {takes[use]}"


def test_what_each_use_takes() -> None:
    check_use(parsed(failOnDataLoss="false", startingOffsets='{"orders": {"0": 5}}', minPartitions="4"), "read")
    check_use(parsed(startingOffsets="latest", maxBytesPerTrigger="1m", maxOffsetsPerTrigger="9"), "stream")
    check_use(parsed(writing=True, producerGroup="shop", tls="true"), "write")
    with pytest.raises(ValueError, match="option startingOffsets: only for streams; a read takes earliest or JSON"):
        check_use(parsed(startingOffsets="latest"), "read")


def test_queues_and_offsets() -> None:
    given = {
        "assign": '{"orders": [0, "broker-a:2"], "bills": ["a:b:1"]}',
        "startingOffsets": '{"orders": {"0": 5, "broker-a:2": -2}, "bills": {"a:b:1": -1}}',
        "endingOffsets": '{"orders": {"broker-b:0": -1, "2": 7}}',
    }
    bounds = bounds_of(given, None)
    assert bounds == Bounds(
        {"orders": (QueueName(None, 0), QueueName("broker-a", 2)), "bills": (QueueName("a:b", 1),)},
        {
            "orders": {QueueName(None, 0): 5, QueueName("broker-a", 2): -2},
            "bills": {QueueName("a:b", 1): -1},
        },
        {"orders": {QueueName("broker-b", 0): -1, QueueName(None, 2): 7}},
    )
    options = parse_options({"nameServer": NAME, **given})
    assert options.bounds == bounds
    assert options.scan == {"errors": "raise", "topics": ["orders", "bills"]}
    assert bounds.selects("orders", "broker-a", 0)
    assert bounds.selects("orders", "broker-b", 0)
    assert not bounds.selects("orders", "broker-b", 2)
    assert not bounds.selects("others", "broker-b", 0)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("startingOffsets", "{", "not JSON"),
        ("startingOffsets", '{"others": {"0": 1}}', "topic 'others' is not selected by assign, subscribe or "),
        ("startingOffsets", '{"orders": [1]}', "the value of 'orders' must map queues to offsets, such as {\"broker-a"),
        ("startingOffsets", '{"orders": {"x": 1}}', "of 'orders': 'x' is not a queue; write broker-a:0, or 0 with"),
        ("startingOffsets", '{"orders": {":0": 1}}', "of 'orders': ':0' is not a queue"),
        ("startingOffsets", '{"orders": {"0": -3}}', "queue 0: it must be a queue offset, or -2 for earliest, -1 for"),
        ("startingOffsets", '{"orders": {"0": true}}', "queue 0: it must be a queue offset"),
        ("startingOffsets", '{"orders": {"0": [1]}}', "queue 0: it must be a queue offset"),
        ("startingOffsets", '{"orders": {"0": 9223372036854775808}}', "queue 0: it must be a queue offset"),
        ("endingOffsets", '{"orders": {"0": -2}}', "queue 0: it must be a queue offset, or -1 for latest"),
        ("endingOffsets", "earliest", "it must be one of latest"),
        ("startingOffsets", "first", "it must be one of earliest, latest"),
    ],
)
def test_wrong_offsets(name: str, value: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        parsed(**{name: value})
    assert str(caught.value).startswith(f"rocketmq: option {name}={value!r}: ")
    assert why in str(caught.value)


@pytest.mark.parametrize("value", ['{"orders": 0}', '{"orders": ["x"]}', '{"orders": [true]}', '{"orders": [-1]}'])
def test_wrong_queues(value: str) -> None:
    with pytest.raises(ValueError, match="the value of 'orders' must be a list of queues"):
        parse_options({"nameServer": NAME, "assign": value})


def test_offsets_of_a_queue_that_is_not_assigned() -> None:
    given = {"assign": '{"orders": ["broker-a:0"]}', "startingOffsets": '{"orders": {"broker-b:0": 1}}'}
    with pytest.raises(ValueError, match="queue broker-b:0 of 'orders' is not in option assign"):
        parse_options({"nameServer": NAME, **given})
