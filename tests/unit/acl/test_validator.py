"""The check of requests, and a broker with it on virtual time."""

import asyncio
import dataclasses
import json
import time

import pytest
from simulation import virtual
from simulation.brokers import scene
from support.native import ROOT
from unit.acl.requests_of import beat, pull, send, signed

from rocketc.acl.accounts import Account, read_account
from rocketc.acl.addresses import parse_addresses
from rocketc.acl.needs import ACL_CODES, ADMIN_CODES, needs_of
from rocketc.acl.rule_files import RuleFiles, Rules
from rocketc.acl.validator import FIELDS_MOST, AccessValidator
from rocketc.broker.access import _subscribed, access_control
from rocketc.broker.config import BrokerConfig
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Flag, Form
from rocketc.remoting.signing import UNIQUE_KEY_QUERY, signature, signed_text, signing_key

VECTORS = json.loads((ROOT / "tests/golden/acl-vectors.json").read_text(encoding="utf-8"))
PEER = ("10.1.1.1", 4000)
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
TRACE = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
def home(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(VECTORS["sample_acl"])
    return tmp_path


@pytest.fixture
def check(home):
    """check(request, peer): the remark of the refusal without the name of the exception, or None."""
    validator = AccessValidator(RuleFiles(str(home)).load(), _subscribed, TRACE)

    def of(request, peer=PEER):
        answer = validator(request, peer)
        if answer is None:
            return None
        assert answer.code == Code.SYSTEM_ERROR and answer.remark.startswith(EXCEPTION)
        return answer.remark.removeprefix(EXCEPTION)

    of.validator = validator
    return of


UNIQUE = {"topic": "topicC", "key": "K", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9"}
ADMIN = {"account": "adminWithPerms"}
OTHER = {"account": "rocketmq2"}

# By the names of the golden answers of a 4.9.7 broker: the same requests, and what differs here for a reason.
REQUESTS = {
    "unsigned heartbeat no ext": Command(34, {}, beat("groupC", "topicC")),
    "unsigned send topicB": Command(310, send("topicB")),
    "unsigned unknown code 9999": Command(9999),
    "unknown key": signed(310, send("topicB"), account="nobody11"),
    "wrong secret": signed(310, send("topicB"), secret="87654321"),
    "ok send topicB": signed(310, send("topicB"), b"body"),
    "ok send topicB code10": signed(10, send("topicB", 10), b"body"),
    "send topicA (DENY)": signed(310, send("topicA"), b"body"),
    "send topicC (SUB only)": signed(310, send("topicC"), b"body"),
    "send topicZ (default DENY)": signed(310, send("topicZ"), b"body"),
    "batch 320 topicA (DENY)": signed(320, send("topicA", 320), b"body"),
    "send trace topic": signed(310, send(TRACE), b"body"),
    "pull groupC topicC": signed(11, pull("topicC", "groupC")),
    "pull groupA topicC": signed(11, pull("topicC", "groupA")),
    "pull groupX(default SUB) topicA": signed(11, pull("topicA", "groupX")),
    "heartbeat groupC topicC": signed(34, {}, beat("groupC", "topicC")),
    "heartbeat groupC topicC,topicZ": signed(34, {}, beat("groupC", "topicC", "topicZ")),
    "heartbeat null body signed": signed(34),
    "heartbeat null body unsigned with ext": Command(34, {"x": "y"}),
    "create topic non admin": signed(17, {"topic": "t"}),
    "create topic adminWithPerms": signed(17, {"topic": "t"}, **ADMIN),
    "adminWithPerms send topicA=PUB": signed(310, send("topicA"), b"body", **ADMIN),
    "adminWithPerms send topicC (not listed)": signed(310, send("topicC"), b"body", **ADMIN),
    "admin rocketmq2 send topicA": signed(310, send("topicA"), b"body", **OTHER),
    "admin rocketmq2 create topic": signed(17, {"topic": "t"}, **OTHER),
    "acl info 54 non admin": signed(54),
    "acl version 52 non admin": signed(52),
    "update acl 50 non admin": signed(50, {"accessKey": "newaccount"}),
    "query unique key signed incl flag": signed(12, {**UNIQUE, UNIQUE_KEY_QUERY: "true"}),
    "query unique key flag unsigned": None,
    "send with any SecurityToken": signed(310, {**send("topicB"), "SecurityToken": "any"}, b"body"),
    "zone field after signing": None,
}
OURS = {
    "batch 320 topicA (DENY)": "No default permission for topic:topicA",
    "heartbeat null body signed": "the heartbeat is not a JSON object",
    "heartbeat null body unsigned with ext": "No accessKey is configured",  # nothing is read before the signature
    "acl info 54 non admin": "Need admin permission for request code=54, but accessKey=RocketMQ is not",
    "acl version 52 non admin": "Need admin permission for request code=52, but accessKey=RocketMQ is not",
    "update acl 50 non admin": "Need admin permission for request code=50, but accessKey=RocketMQ is not",
    "query unique key signed incl flag": None,
}
ANSWERS = {one["request"]: one["remark"] or "" for one in VECTORS["server_answers"]["4.9.7"]}
REQUESTS["query unique key flag unsigned"] = signed(12, UNIQUE)
REQUESTS["query unique key flag unsigned"].fields[UNIQUE_KEY_QUERY] = "true"
REQUESTS["zone field after signing"] = signed(310, send("topicB"), b"body")
REQUESTS["zone field after signing"].fields["__ZONE_NAME"] = "east"


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_refused_as_at_a_broker_of_rocketmq(check, name):
    theirs = ANSWERS[name].removeprefix(EXCEPTION) if ANSWERS[name].startswith(EXCEPTION) else None
    assert check(REQUESTS[name]) == OURS.get(name, theirs)
    assert OURS.get(name, "") != theirs  # a difference that is one


def test_the_golden_answers_that_are_not_compared_are_about_changes():
    assert ANSWERS.keys() - REQUESTS.keys() == {"update acl 50 ANY perm", "update acl 50 short", "delete acl 51"}


@pytest.mark.parametrize("one", VECTORS["signatures"], ids=lambda one: one["name"])
def test_recorded_requests_need_what_they_need_in_rocketmq(one):
    fields = {**one["ext_fields_without_signature"], "Signature": one["signature"]}
    command = Command(one["code"], fields, bytes.fromhex(one["body_hex"] or ""))
    needs = {name: permission.name for name, permission in needs_of(command, _subscribed).items()}
    expected = one.get("needed_permissions_4_9_7")
    if expected is None:  # of 5.x clients
        expected = {
            "heart-beat-5.3.3": {"%RETRY%groupC": "SUB", "topicC": "SUB"},
            "send-v2-with-5x-common-fields": {"topicB": "PUB"},
            "pull-with-bname-lo": {"%RETRY%groupC": "SUB", "topicC": "SUB"},
        }[one["name"]]
    assert needs == expected
    account = Account(one["accessKey"], one["secretKey"], perms=dict.fromkeys(needs, 12))
    validator = AccessValidator(Rules(accounts={account.access_key: account}), _subscribed, TRACE)
    assert validator(command, PEER) is None


# ------------------------------------------------------------------------------------------ what is closed


@pytest.mark.parametrize("change", ["field", "new field", "removed field", "body", "value moved"])
def test_a_request_with_other_fields_is_refused(check, change):
    request = signed(310, send("topicB"), b"body")
    if change == "field":
        request.fields["b"] = "topicC"
    elif change == "new field":
        request.fields["n"] = "broker-a"
    elif change == "removed field":
        del request.fields["c"]
    elif change == "body":
        request.body = b"Body"
    else:
        request.fields["c"], request.fields["e"] = request.fields["e"], request.fields["c"]
    assert check(request) == "Check signature failed for accessKey=RocketMQ"


@pytest.mark.parametrize("given", ["", "x", "é", "\ud800", "A" * 1_000_000, None])
def test_wrong_signatures_are_refused(check, given):
    request = signed(310, send("topicB"), b"body")
    if given is None:
        del request.fields["Signature"]
    else:
        request.fields["Signature"] = given
    assert check(request) == "Check signature failed for accessKey=RocketMQ"


def test_the_group_of_a_retry_topic_is_the_one_that_is_checked(check):
    """RocketMQ looks at the field of the group, which any client can set to a group that it may use."""
    assert check(signed(310, send("%RETRY%groupA", group="groupC"))) == "No default permission for group:groupA"
    assert check(signed(10, send("%RETRY%groupA", 10, group="groupC"))) == "No default permission for group:groupA"
    assert check(signed(320, send("%RETRY%groupA", 320))) == "No default permission for group:groupA"
    assert check(signed(310, send("%RETRY%groupC", group="groupA"))) is None


def test_lite_pulls_need_what_pulls_need(check):
    for topic, group in [("topicA", "groupC"), ("topicC", "groupA"), ("topicC", "groupC")]:
        assert check(signed(361, pull(topic, group, 361))) == check(signed(11, pull(topic, group)))


@pytest.mark.parametrize("code", sorted(ADMIN_CODES))
def test_codes_of_administrators(check, code):
    remark = f"Need admin permission for request code={code}, but accessKey=RocketMQ is not"
    assert check(signed(code, {"topic": "t"})) == remark
    assert check(signed(code, {"topic": "t"}, **OTHER)) is None


@pytest.mark.parametrize("code", sorted(ACL_CODES))
def test_no_white_list_is_enough_for_the_accounts(check, code):
    assert check(Command(code), ("10.10.103.7", 1)) == "No accessKey is configured"
    assert check(Command(code, {"AccessKey": "rocketmq2"}), ("192.168.1.5", 1)).startswith("Check signature failed")
    assert check(Command(17), ("10.10.103.7", 1)) is None


@pytest.mark.parametrize(("code", "name"), [(324, "topic"), (325, "b")])
def test_a_reply_goes_to_the_topic_of_replies_or_needs_a_permission(check, code, name):
    assert check(signed(code, {name: "DefaultCluster_REPLY_TOPIC"})) is None
    assert check(signed(code, {name: "topicA"})) == "No default permission for topic:topicA"
    assert check(signed(310, {"b": "DefaultCluster_REPLY_TOPIC"})).startswith("No default permission")


@pytest.mark.parametrize("code", [306, 314, 316, 329, 353])
def test_what_changes_others_needs_an_administrator(check, code):
    assert check(signed(code, {})) is not None
    assert check(signed(code, {}, **OTHER)) is None


@pytest.mark.parametrize("code", [14, 29, 30, 31, 33, 37, 41])
def test_other_codes_need_only_a_signature(check, code):
    """As in RocketMQ; docs/security.md says so."""
    assert check(signed(code, {"topic": "topicA", "consumerGroup": "groupA"})) is None
    assert check(Command(code, {"topic": "topicA"})) == "No accessKey is configured"


# ------------------------------------------------------------------------------------------ white lists


@pytest.mark.parametrize("host", ["10.10.103.1", "::ffff:10.10.103.255"])
def test_addresses_of_the_global_white_list_need_nothing(check, host):
    assert check(Command(310, send("topicA")), (host, 4000)) is None
    assert check(Command(9999), (host, 4000)) is None


@pytest.mark.parametrize(("host", "says"), [("192.168.1.7", None), ("192.168.2.7", "Check signature failed")])
def test_addresses_of_an_account_need_its_name(check, host, says):
    named = Command(310, {**send("topicA"), "AccessKey": "rocketmq2"})
    assert (check(named, (host, 1)) or "None").startswith(str(says))
    assert check(Command(310, send("topicA")), (host, 1)) == "No accessKey is configured"
    other = Command(310, {**send("topicA"), "AccessKey": "RocketMQ"})
    assert check(other, (host, 1)) == "Check signature failed for accessKey=RocketMQ"


@pytest.mark.parametrize("peer", [None, (), "", ("",), ("localhost", 1), ("one", 1)])
def test_peers_without_an_address_are_on_no_list(check, peer):
    assert check(Command(310, send("topicA")), peer) == "No accessKey is configured"


def test_ipv6_peers_match():
    rules = Rules(white=parse_addresses("2001:db8::*"))
    validator = AccessValidator(rules, _subscribed, TRACE)
    assert validator(Command(11), ("2001:db8::7", 1, 0, 0)) is None
    assert validator(Command(11), ("2001:db9::7", 1, 0, 0)) is not None


# ------------------------------------------------------------------------------------------ hostile requests


def test_a_request_with_many_fields_is_refused_without_a_look_at_them(check, monkeypatch):
    request = signed(310, {**send("topicB"), **{f"x{n}": "y" for n in range(FIELDS_MOST)}})
    monkeypatch.setattr("rocketc.acl.validator.signed_text", None)
    assert check(request) == "Check signature failed for accessKey=RocketMQ"


def test_remarks_are_short(check):
    assert len(check(signed(310, send("topicB"), account="x" * 1_000_000))) < 1000
    assert len(check(signed(310, send("t" * 1_000_000)))) < 1000


@pytest.mark.parametrize("body", [b"{", b"[]", b"[" * 100_000, b'{"consumerDataSet":[{}]}', b"\xff", b"{}" * 600_000])
def test_heartbeats_that_cannot_be_read_are_refused(check, body):
    request = signed(34, {}, body)
    assert check(request) is not None
    assert check(Command(34, {}, body)) == "No accessKey is configured"


@pytest.mark.measure
def test_large_requests_cost_little(check):
    """16 MiB of body or fields: some tens of milliseconds, and nothing for an unknown account."""
    large = "x" * (15 << 20)
    for request in (signed(310, {**send("topicB"), "i": large}), signed(310, send("topicB"), large.encode())):
        began = time.perf_counter()
        assert check(request) is None
        assert time.perf_counter() - began < 1.0
    began = time.perf_counter()
    check(signed(310, {**send("topicB"), "i": large}, account="nobody11"))
    assert time.perf_counter() - began < 1.0


def test_texts_of_the_validator_are_without_secrets(check):
    refused = signed(310, send("topicB"), secret="another-secret")
    expected = signature(signing_key("12345678"), signed_text(refused.fields), refused.body)
    remark = check(refused)
    assert "12345678" not in remark and expected not in remark
    assert "12345678" not in repr(check.validator) + repr(check.validator.rules)


# ------------------------------------------------------------------------------------------ at a broker


class Peer(asyncio.Protocol):
    def __init__(self):
        self.answers, self._decoder = {}, FrameDecoder()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        for frame in self._decoder.receive(data):
            answer = Command.decode(*frame)
            self.answers[answer.opaque] = answer

    async def ask(self, *requests, form=Form.JSON):
        """Send requests at once; return the answers in their order, None for a request without one."""
        begin = len(self.answers) + 1000
        for at, request in enumerate(requests):
            request.opaque = begin + at
        self.transport.write(b"".join(request.encode(form) for request in requests))
        await asyncio.sleep(5)
        return [self.answers.get(begin + at) for at in range(len(requests))]


def play(tmp_path, home, main, **config):
    async def whole():
        settings = {"acl_enable": True, "rocketmq_home": str(home), **config}
        async with scene(tmp_path / "store", **settings) as stage:
            peers = []
            for server in (stage.broker.server, stage.broker.vip_server):
                peer = Peer()
                virtual.link(peer, server.connection(), stage.chance)
                peers.append(peer)
            await main(stage, *peers)

    virtual.run(whole())


@pytest.mark.parametrize("form", Form)
def test_no_send_goes_around_the_check(tmp_path, home, form):
    """Neither by the compiled path, nor on the port of the fast lane, nor in either form of headers."""

    async def main(stage, *peers):
        assert stage.broker.path.enabled
        for peer in peers:
            requests = [
                signed(310, send("topicB"), b"first"),  # creates the topic
                Command(310, send("topicB"), b"unsigned"),
                signed(310, send("topicB"), b"wrong", secret="87654321"),
                signed(310, send("topicA"), b"denied"),
                Command(310, send("topicB"), b"oneway", flag=Flag.ONEWAY),
                signed(310, send("topicB"), b"second"),
            ]
            answers = await peer.ask(*requests, form=form)
            assert [answer and answer.code for answer in answers] == [0, 1, 1, 1, None, 0]
            assert answers[1].remark == EXCEPTION + "No accessKey is configured"
            assert not answers[1].fields and not answers[1].body
        await stage.settle()
        stored = [bytes(one.body) for one in stage.store.get("topicB", 0, 0, 100).messages]
        assert stored == [b"first", b"second"] * 2
        assert stage.broker.path.sent == 0 and stage.broker.topics.table.get("topicA") is None

    play(tmp_path, home, main)


def test_the_compiled_path_is_used_without_access_control(tmp_path, home):
    async def main(stage, peer, vip):
        await peer.ask(Command(310, send("topicB"), b"first"))
        await peer.ask(Command(310, send("topicB"), b"second"))
        assert stage.broker.path.sent == 1

    play(tmp_path, home, main, acl_enable=False)


def test_unknown_codes_are_checked_too(tmp_path, home):
    async def main(stage, peer, vip):
        answers = await peer.ask(Command(9999), signed(9999))
        assert [answer.code for answer in answers] == [1, 3]

    play(tmp_path, home, main)


def test_an_error_in_the_check_refuses_the_request(tmp_path, home, caplog):
    async def main(stage, peer, vip):
        stage.broker.access.check.rules = None
        answers = await peer.ask(signed(310, send("topicB"), b"body"))
        assert answers[0].code == 1 and stage.broker.path.sent == 0

    play(tmp_path, home, main)
    assert "request 310 failed" in caplog.text and "12345678" not in caplog.text


def test_changed_files_count_for_open_connections(tmp_path, home):
    async def main(stage, peer, vip):
        path = home / "conf/plain_acl.yml"
        assert (await peer.ask(signed(310, send("topicB"), b"x")))[0].code == 0
        path.write_text("accounts: [")
        await asyncio.sleep(5)
        assert (await peer.ask(signed(310, send("topicB"), b"x")))[0].code == 0
        path.write_text(VECTORS["sample_acl"].replace("topicB=PUB|SUB", "topicB=SUB"))
        await asyncio.sleep(5)
        refused = (await peer.ask(signed(310, send("topicB"), b"x")))[0]
        assert refused.remark == EXCEPTION + "No default permission for topic:topicB"
        path.write_text("accounts: []")
        await asyncio.sleep(5)
        refused = (await peer.ask(signed(310, send("topicB"), b"x")))[0]
        assert refused.remark == EXCEPTION + "No acl config for RocketMQ"

    play(tmp_path, home, main)


def test_a_broker_without_home_or_with_a_wrong_file_does_not_start(home, monkeypatch):
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    with pytest.raises(ValueError, match="set rocketmqHome, or the environment variable"):
        access_control(BrokerConfig(acl_enable=True), lambda: 0, in_thread=False)
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))
    assert len(access_control(BrokerConfig(acl_enable=True), lambda: 0, in_thread=False).rules.accounts) == 3
    (home / "conf/plain_acl.yml").write_text("accounts: [")
    with pytest.raises(ValueError, match="this is not YAML"):
        access_control(BrokerConfig(acl_enable=True), lambda: 0, in_thread=False)


def test_an_account_cannot_be_changed():
    account = read_account({"accessKey": "account", "secretKey": "12345678"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        account.is_admin = True
