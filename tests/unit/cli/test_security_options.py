"""Accounts and TLS on the command line: admin and top at servers that want them, and wrong use."""

import json
import logging
import os

import pytest
from support.command import rocketc
from support.secured import ACCESS_KEY, SECRET, Secured

from rocketc.client import Producer
from rocketc.client.security import Credentials, Tls


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    servers = Secured(tmp_path_factory.mktemp)
    yield servers
    servers.close()


@pytest.fixture(autouse=True)
def quiet_servers(caplog):
    """The servers share stderr with the command: what they log would be written over its errors while `run` reads."""
    caplog.set_level(logging.ERROR, "rocketc.remoting")


@pytest.fixture
def account(tmp_path, monkeypatch):
    """The arguments of an account whose secret is in the environment."""
    monkeypatch.setenv("ROCKETC_SECRET_KEY", SECRET)
    return ["--access-key", ACCESS_KEY]


def test_an_account_in_a_file(secured, run, tmp_path):
    (tmp_path / "tools.yml").write_text(f"accessKey: {ACCESS_KEY}\nsecretKey: {SECRET}\n")
    there = ["-n", secured["plain"].name_server, "--credentials", tmp_path / "tools.yml"]
    code, out, err = run("admin", "create-topic", "signed", *there)
    assert (code, out, err) == (0, "signed: 8 queues on broker-a\n", "")


def test_an_account_with_the_secret_in_the_environment(secured, run, account, monkeypatch):
    there = ["-n", secured["plain"].name_server]
    assert run("admin", "groups", "--all", *there, *account)[0] == 0
    code, out, err = run("admin", "groups", *there)
    assert (code, out) == (3, "") and "No accessKey is configured" in err
    monkeypatch.setenv("ROCKETC_SECRET_KEY", "another secret")
    code, out, err = run("admin", "groups", *there, *account)
    assert (code, out) == (3, "") and "Check signature failed for accessKey=operators" in err and "secret" not in err


def test_tls(secured, run, account):
    there = ["-n", secured["tls"].name_server, *account]
    assert run("admin", "groups", "--all", *there, "--tls-ca", secured.file("ca"))[0] == 0
    code, out, err = run("admin", "groups", *there, "--tls")
    assert (code, out) == (3, "") and "is from an authority that is not trusted here" in err
    code, out, err = run("admin", "groups", *there)
    assert (code, out) == (3, "") and "it may accept only TLS" in err


def test_mutual_tls(secured, run, account):
    there = ["-n", secured["mutual"].name_server, *account, "--tls-ca", secured.file("ca")]
    shown = ["--tls-cert", secured.file("client"), "--tls-key", secured.file("client.key")]
    assert run("admin", "groups", "--all", *there, *shown)[0] == 0
    code, out, err = run("admin", "groups", *there)
    assert (code, out) == (3, "") and "the server wants a certificate of this client" in err


def test_a_certificate_for_another_host(secured, run, account):
    there = ["-n", secured["other host"].name_server, *account, "--tls-ca", secured.file("ca")]
    code, out, err = run("admin", "groups", *there)
    assert (code, out) == (3, "") and "the certificate of the server is for another host: IP address mismatch" in err
    code, out, err = run("admin", "groups", "--all", *there, "--tls-any-host")
    assert code == 0 and "rocketc: --tls-any-host: a server with any certificate of the authority" in err


def test_top(secured, run, account):
    url = f"rocketmq://{secured['mutual'].address}"
    files = [
        "--tls-ca",
        secured.file("ca"),
        "--tls-cert",
        secured.file("client"),
        "--tls-key",
        secured.file("client.key"),
    ]
    code, out, err = run("top", url, "--json", "-n", "0.1", *account, *files)
    assert (code, err) == (0, "") and json.loads(out)["broker"]["brokerVersionDesc"] == "V5_3_3"
    code, out, err = run("top", url, "--json", "-n", "0.1", *files)
    assert (code, out) == (3, "") and "No accessKey is configured" in err


def test_replicate(secured, run, account, tmp_path):
    """The broker of the master is asked over TLS, with a signature. The HA port knows neither."""
    broker, ca = secured["tls"], secured.file("ca")
    with Producer("shop", broker.name_server, credentials=Credentials(ACCESS_KEY, SECRET), tls=Tls(ca)) as producer:
        producer.send("replicated", b"one")
    ours = [broker.ha_address, tmp_path / "copy", "--broker", broker.address, "--from", "start", "--then", "verify"]
    code, out, err = run("replicate", *ours, *account, "--tls-ca", ca)
    assert code == 0 and "checked  1 record" in out and "does not say" not in err
    for options, says in (
        (["--tls-ca", ca], "GET_BROKER_CONFIG was answered with 1 (SYSTEM_ERROR): org.apache.rocketmq.acl.common."),
        (account, "it may accept only TLS"),
    ):
        ours[1] = tmp_path / "other"
        code, out, err = run("replicate", *ours, *options)
        assert (code, out) == (3, "") and says in err and err.count("\n") == 1
        assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--access-key", "a"], "--access-key needs its secret in the environment variable ROCKETC_SECRET_KEY"),
        (["--access-key", "a", "--credentials", "x"], "use either --access-key or --credentials"),
        (["--tls-ca", "/none"], "/none: No such file"),
        (["--tls-key", "/none"], "/none: give the certificate of this key, too"),
    ],
)
def test_wrong_use(run, monkeypatch, args, says):
    monkeypatch.delenv("ROCKETC_SECRET_KEY", raising=False)
    for command in (
        ["admin", "lag", "-n", "127.0.0.1:1"],
        ["top", "rocketmq://127.0.0.1:1", "--json"],
        ["replicate", "127.0.0.1:1", "copy"],
    ):
        code, out, err = run(*command, *args)
        assert (code, out) == (2, "") and says in err and err.count("\n") == 1


def test_files_of_an_account_that_cannot_be_read(run, tmp_path):
    code, out, err = run("admin", "lag", "--credentials", tmp_path / "none")
    assert (code, out) == (3, "") and "none: No such file" in err
    (tmp_path / "tools.yml").write_text("accessKey: a\n")
    code, out, err = run("admin", "lag", "--credentials", tmp_path / "tools.yml")
    assert (code, out) == (2, "") and "tools.yml: the file needs accessKey and secretKey" in err


def test_a_store_does_not_have_accounts(run, tmp_path):
    code, out, err = run("top", tmp_path, "--json", "--tls")
    assert (code, out) == (2, "") and "accounts and TLS are for a broker" in err


def test_the_secret_is_not_in_the_arguments_or_the_errors(secured):
    """Of a process of its own, in all that it writes."""
    address = secured["plain"].name_server
    env = {"ROCKETC_SECRET_KEY": SECRET, "PYTHONDEVMODE": "1"}
    done = rocketc("admin", "groups", "-n", address, "--access-key", "nobody11", env=env)
    assert done.returncode == 3 and b"No acl config for nobody11" in done.stderr
    assert SECRET.encode() not in done.stdout + done.stderr + os.fsencode(" ".join(map(str, done.args)))
