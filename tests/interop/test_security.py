"""Access control and TLS with RocketMQ's own clients, brokers and name servers.

The unit tests compare with what was recorded. Here the real ones answer: a 4.9.7 broker with the same plain_acl.yml, a
5.3.3 broker with ACL 2.0, and clients of both releases with signatures and TLS against rocketc's broker.
"""

import asyncio
import contextlib
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop import scenarios
from interop.peer import RELEASES, Unavailable
from support.admin_story import Operator
from support.certificates import Certificates
from unit.acl.requests_of import send, signed
from unit.acl.test_validator import EXCEPTION, OURS, REQUESTS, VECTORS, Peer

import rocketc
from rocketc.remoting.addresses import split_address
from rocketc.remoting.channel import Channel
from rocketc.remoting.command import Command
from rocketc.remoting.signing import Credentials, Signer
from rocketc.remoting.tls_contexts import client_context, tls_connector
from rocketc.remoting.tls_settings import tls_settings

ACCOUNTS = """\
accounts:
- accessKey: allowed-account
  secretKey: "a long secret"
  topicPerms: [orders=PUB|SUB]
  groupPerms: [shop=SUB]
- accessKey: denied-account
  secretKey: "a long secret"
  topicPerms: [orders=SUB]
- accessKey: operators
  secretKey: "a third secret"
  admin: true
"""


@contextlib.contextmanager
def closing(made: Any) -> Iterator[Any]:
    try:
        yield made
    finally:
        made.close()


def java(kind: Any, *arguments: Any, **settings: Any) -> Any:
    try:
        return closing(kind(*arguments, **settings))
    except Unavailable as reason:
        pytest.skip(str(reason))


def answers(address: str, requests: list[Command]) -> list[Command | None]:
    """The answers to requests on one connection, in their order."""

    async def main() -> Any:
        host, port = split_address(address)
        peer = Peer()
        await asyncio.get_running_loop().create_connection(lambda: peer, host, port)
        found = []
        for at, request in enumerate(requests):
            request.opaque = at
            peer.transport.write(request.encode())
            for _ in range(500):
                await asyncio.sleep(0.01)
                if at in peer.answers:
                    break
            found.append(peer.answers.get(at))
        peer.transport.close()
        return found

    return asyncio.run(main())


def make_home(folder: Path, text: str) -> Path:
    (folder / "conf").mkdir(parents=True)
    (folder / "conf/plain_acl.yml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("the command openssl is not installed")
    return Certificates(tmp_path_factory.mktemp("certificates"))


def refusal(answer: Command | None) -> str:
    """The message of an AclException without its place in the source, or ""."""
    remark = (answer.remark or "") if answer is not None else "no answer"
    return remark.removeprefix(EXCEPTION).partition(", org.apache.")[0] if remark.startswith(EXCEPTION) else ""


@pytest.mark.long
def test_a_broker_of_4_9_7_with_the_same_file_refuses_the_same_requests(tmp_path):
    make_home(tmp_path / "java", VECTORS["sample_acl"])
    names = list(REQUESTS)
    with java(scenarios.JavaCluster, "4.9.7", tmp_path / "java", **{"broker.aclEnable": "true"}) as cluster:
        theirs = answers(cluster.broker, [REQUESTS[name] for name in names])
    home = make_home(tmp_path / "ours", VECTORS["sample_acl"])
    with rocketc.Broker(acl_enable=True, rocketmq_home=str(home)) as broker:
        mine = answers(broker.address, [REQUESTS[name] for name in names])
    differing = {name: refusal(b) for name, a, b in zip(names, theirs, mine, strict=True) if refusal(a) != refusal(b)}
    assert differing == {name: text or "" for name, text in OURS.items()}
    assert sum(bool(refusal(one)) for one in theirs) > 10


NEW = {"accessKey": "newaccount", "secretKey": "long-secret", "admin": "false", "topicPerms": "topicA=PUB,topicB=SUB"}
# Not here: a wrong defaultTopicPerm in 50 and a wrong address in 53. 4.9.7 writes them into the file, and then it uses
# DENY, or cannot read the file any more. Ours refuses them.
CHANGES = [
    signed(54, account="rocketmq2"),
    signed(52, account="rocketmq2"),
    signed(50, NEW, account="rocketmq2"),
    signed(54, account="rocketmq2"),
    signed(310, send("topicA"), b"body", account="newaccount", secret="long-secret"),
    signed(50, {"accessKey": "newaccount", "topicPerms": "topicA=SUB", "admin": "true"}, account="rocketmq2"),
    signed(50, {**NEW, "topicPerms": "topicA=SUB", "admin": "true"}, account="rocketmq2"),
    signed(54, account="rocketmq2"),
    signed(310, send("topicA"), b"body", account="newaccount", secret="long-secret"),
    signed(50, {**NEW, "topicPerms": "topicA=ANY"}, account="rocketmq2"),
    signed(50, {**NEW, "accessKey": "short"}, account="rocketmq2"),
    signed(53, {"globalWhiteAddrs": "10.0.0.1,10.0.1.*", "aclFileFullPath": ""}, account="rocketmq2"),
    signed(54, account="rocketmq2"),
    signed(51, {"accessKey": "newaccount"}, account="rocketmq2"),
    signed(51, {"accessKey": "newaccount"}, account="rocketmq2"),
    signed(54, account="rocketmq2"),
    signed(52, account="rocketmq2"),
]


def shape(answer: Command | None) -> Any:
    """What is compared of an answer about accounts: the code, the body, and the names and counters of the versions."""
    assert answer is not None
    body = json.loads(answer.body) if answer.body else None
    for one in (body or {}).get("plainAccessConfigs", ()):
        for name in ("topicPerms", "groupPerms"):
            one[name] = sorted(one.get(name) or ())
    fields = {name: sorted(json.loads(text)) for name, text in answer.fields.items() if name == "version"}
    return answer.code, body, sorted(answer.fields.keys() - {"transactionId"}), fields


@pytest.mark.long
def test_changes_of_accounts_are_those_of_4_9_7(tmp_path):
    make_home(tmp_path / "java", VECTORS["sample_acl"])
    with java(scenarios.JavaCluster, "4.9.7", tmp_path / "java", **{"broker.aclEnable": "true"}) as cluster:
        theirs = [shape(one) for one in answers(cluster.broker, CHANGES)]
    home = make_home(tmp_path / "ours", VECTORS["sample_acl"])
    with rocketc.Broker(acl_enable=True, rocketmq_home=str(home)) as broker:
        mine = [shape(one) for one in answers(broker.address, CHANGES)]
    differing = [(one.code, one.fields, a, b) for one, a, b in zip(CHANGES, theirs, mine, strict=True) if a != b]
    assert differing == []


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
def test_clients_with_signatures(tmp_path, release):
    home = make_home(tmp_path, ACCOUNTS)
    with rocketc.Broker(acl_enable=True, rocketmq_home=str(home)) as broker:
        broker.topics.create("orders")

        def play(account: str, secret: str = "a long secret") -> Any:
            folder = tmp_path / (account or "unsigned")
            arguments = (broker.name_server, "orders", "shop", account, secret, "20")
            with java(scenarios.Process, release, folder, "Secured", *arguments) as client:
                return client.hear()

        assert play("allowed-account") == {"sent": 20, "received": 20, "code": 0, "error": ""}
        for account, secret, says in [
            ("denied-account", "a long secret", "No default permission for topic:orders"),
            ("allowed-account", "another secret", "Check signature failed for accessKey=allowed-account"),
            ("nobody11", "another secret", "No acl config for nobody11"),
            ("", "", "No accessKey is configured"),
        ]:
            told = play(account, secret)
            assert (told["sent"], told["code"]) == (0, 1) and EXCEPTION + says in told["error"]


def acl_2() -> dict[str, str]:
    """The settings of a 5.3.3 broker with ACL 2.0, and the account rocketmq."""
    provider = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider"
    user = json.dumps({"username": "rocketmq", "password": "12345678"})
    inner = json.dumps({"accessKey": "rocketmq", "secretKey": "12345678"})
    return {
        "auth.authenticationEnabled": "true",
        "auth.authenticationMetadataProvider": provider.format("authentication", "Authentication"),
        "auth.initAuthenticationUser": user,
        "auth.innerClientAuthenticationCredentials": inner,
        "auth.authorizationEnabled": "true",
        "auth.authorizationMetadataProvider": provider.format("authorization", "Authorization"),
    }


@pytest.mark.long
def test_our_signatures_at_a_broker_of_5_3_3_with_acl_2(tmp_path):
    super_user = {"account": "rocketmq"}
    with java(scenarios.JavaCluster, "5.3.3", tmp_path, **acl_2()) as cluster:
        unique = {"topic": "TBW102", "key": "K", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9"}
        found = answers(
            cluster.broker,
            [
                signed(310, send("TBW102"), b"body \xff", **super_user),
                signed(310, send("TBW102"), b"body", account="rocketmq", secret="wrong-secret"),
                signed(310, send("TBW102"), b"body", account="nobody11"),
                Command(310, send("TBW102"), b"body"),
                signed(12, {**unique, "_UNIQUE_KEY_QUERY": "true"}, **super_user),
                signed(
                    34,
                    {},
                    json.dumps({"clientID": "c", "producerDataSet": [{"groupName": "g"}]}).encode(),
                    **super_user,
                ),
            ],
        )
        assert [answer and answer.code for answer in found] == [0, 16, 16, 16, 22, 0]
        assert [answer and answer.remark for answer in found[1:4]] == [
            "check signature failed.", "User:nobody11 is not found.", "username cannot be null."
        ]  # fmt: skip

        async def zone() -> Command:
            """The same by a channel, with a zone: RocketMQ's own clients fail here."""
            loop, (host, port) = asyncio.get_running_loop(), split_address(cluster.broker)
            signer = Signer(Credentials("rocketmq", "12345678", "a token"), zone=("east", "isolated"))
            channel = Channel(lambda one: loop.create_connection(one, host, port), random.Random(1), hook=signer)
            try:
                return await channel.call(30, {"topic": "TBW102", "queueId": 0}, loop.time() + 10)
            finally:
                channel.close()

        assert asyncio.run(zone()).code == 0


@pytest.mark.long
def test_rocketc_admin_at_a_broker_of_5_3_3_with_acl_2(tmp_path, run, monkeypatch):
    with java(scenarios.JavaCluster, "5.3.3", tmp_path, **acl_2()) as cluster:

        def admin(*args: object, account: str = "rocketmq", secret: str = "12345678") -> Any:
            monkeypatch.setenv("ROCKETC_SECRET_KEY", secret)
            return run("admin", *args, "-n", cluster.name_server, *(["--access-key", account] if account else []))

        operator = Operator(lambda *args: run(*args, "--access-key", "rocketmq"), cluster.name_server)
        monkeypatch.setenv("ROCKETC_SECRET_KEY", "12345678")
        operator.until(lambda: operator.code("brokers"), 0)
        for args in (
            ("create-topic", "signed", "--queues", 2),
            ("topics", "--all"),
            ("groups", "--all"),
            ("lag",),
            ("permissions", "signed", "--set", "r"),
            ("reset-offset", "TOOLS_CONSUMER", "signed", "--to", "latest", "--dry-run"),
            ("delete-topic", "signed", "--yes"),
        ):
            code, out, err = admin(*args)
            assert code == 0, (args, out, err)
        for account, secret, says in (
            ("rocketmq", "wrong-secret", "NO_PERMISSION): check signature failed."),
            ("nobody11", "12345678", "NO_PERMISSION): User:nobody11 is not found."),
            ("", "", "NO_PERMISSION): username cannot be null."),
        ):
            code, out, err = admin("groups", account=account, secret=secret)
            assert (code, out) == (3, "") and says in err and "secret" not in err


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", ["test mode", "server", "mutual"])
def test_clients_with_tls(tmp_path, release, kind, certificates):
    conf = tmp_path / "tls.properties"
    names = {"server": certificates.properties, "mutual": certificates.mutual, "test mode": lambda: "# nothing\n"}
    conf.write_text(names[kind]() + "tls.client.authServer=false\n")
    if kind == "mutual":  # the broker shows it to its name server
        conf.write_text(
            f"{conf.read_text()}tls.client.keyPath={certificates.key('client')}\n"
            f"tls.client.certPath={certificates.cert('client')}\n"
        )
    options = ["-Dtls.enable=true", "-Dtls.config.file=/none"]
    if kind != "test mode":
        options += ["-Dtls.test.mode.enable=false", "-Dtls.client.authServer=true"]
        options.append(f"-Dtls.client.trustCertPath={certificates.cert('ca')}")
    mutual = [
        f"-Dtls.client.keyPath={certificates.key('client')}",
        f"-Dtls.client.certPath={certificates.cert('client')}",
    ]
    home = make_home(tmp_path, ACCOUNTS)
    mode = "permissive" if kind == "test mode" else "enforcing"
    acl = {"acl_enable": True, "rocketmq_home": str(home)} if kind == "mutual" else {}
    settings: Any = {"tls_server_mode": mode, "tls_config_file": str(conf), **acl}
    with rocketc.Broker(**settings) as broker:
        broker.topics.create("orders")

        def play(name: str, options: list[str]) -> Any:
            arguments = (broker.name_server, "orders", "shop", "allowed-account", "a long secret", "20")
            with java(scenarios.Process, release, tmp_path / name, "Secured", *arguments, options=options) as client:
                return client.hear()

        good = play("good", options + (mutual if kind == "mutual" else []))
        assert good == {"sent": 20, "received": 20, "code": 0, "error": ""}
        bad = play("bad", options if kind == "mutual" else [])
        assert bad["sent"] == (20 if kind == "test mode" else 0)
        assert bad["code"] == (0 if kind == "test mode" else -1)


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
def test_our_broker_registers_at_a_name_server_of_rocketmq_with_tls(tmp_path, release, certificates):
    conf = tmp_path / "java.properties"
    conf.write_text("tls.test.mode.enable=false\n" + certificates.properties())
    options = [f"-Dtls.config.file={conf}", "-Dtls.server.mode=enforcing"]
    with java(scenarios.JavaCluster, release, tmp_path / "java", options=options, brokerPort="none") as cluster:
        mine = tmp_path / "tls.properties"
        mine.write_text(f"tls.client.authServer=true\ntls.client.trustCertPath={certificates.cert('ca')}\n")
        settings: Any = {"namesrv_addr": cluster.name_server, "tls_config_file": str(mine), "tls_enable": "true"}
        settings["tls_server_mode"] = "disabled"
        with rocketc.Broker(**settings) as broker:
            broker.topics.create("orders")

            async def route() -> Command:
                connect = tls_connector(client_context(tls_settings(config_file=str(mine))))
                loop = asyncio.get_running_loop()
                channel = Channel(connect(*split_address(cluster.name_server)), random.Random(1))
                try:
                    while True:
                        answer = await channel.call(105, {"topic": "orders"}, loop.time() + 10)
                        if answer.code == 0:
                            return answer
                        await asyncio.sleep(0.1)
                finally:
                    channel.close()

            answer = asyncio.run(asyncio.wait_for(route(), 30))
            assert broker.address.encode() in answer.body
