"""put, cat, stats, get, export and consume at servers that want an account, TLS, or both."""

import json
import time

import pytest
from support.secured import ACCESS_KEY, SECRET, Secured

from rocketc.cli import exit_codes

COMMANDS = [
    ["cat"],
    ["stats"],
    ["stats", "--by", "tag"],
    ["get", "--key", "k1"],
    ["get", "--id", "7F00000100002A9F0000000000000000"],
    ["consume", "-g", "billing"],
    ["put"],
]


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    servers = Secured(tmp_path_factory.mktemp)
    yield servers
    servers.close()


@pytest.fixture
def account(monkeypatch):
    """The arguments of an account whose secret is in the environment."""
    monkeypatch.setenv("ROCKETC_SECRET_KEY", SECRET)
    return ["--access-key", ACCESS_KEY]


@pytest.fixture
def work(run, tmp_path):
    """Run a command on the topic `orders` of a broker, with arguments."""
    (tmp_path / "lines").write_bytes(b"one\ntwo\n")

    def work(broker, command, *arguments):
        name, *options = command
        files = [tmp_path / "lines"] if name == "put" else []
        return run(name, f"rocketmq://{broker.name_server}/orders", *files, *options, *arguments)

    return work


def arguments_for(secured, kind):
    if kind == "plain":
        return []
    known = ["--tls-ca", secured.file("ca")]
    shown = ["--tls-cert", secured.file("client"), "--tls-key", secured.file("client.key")]
    return known + (shown if kind == "mutual" else [])


@pytest.mark.parametrize("kind", ["plain", "mutual"])
def test_all_commands(secured, work, account, tmp_path, kind):
    broker, there = secured[kind], [*account, *arguments_for(secured, kind)]
    code, _, err = work(broker, ["put", "--tag", "web", "--key", "k1"], *there)
    assert code == 0 and err.startswith("rocketc: 2 messages put into ")
    assert work(broker, ["put", "-q", "0"], *there)[0] == 0
    code, out, err = work(broker, ["cat", "--tag", "web", "-f", "%s\n"], *there)
    assert (code, out, err) == (0, "one\ntwo\n", "")
    assert work(broker, ["cat", "-F", "-c", "4", "-f", "%s\n"], *there)[:2] == (0, "one\ntwo\none\ntwo\n")
    code, out, err = work(broker, ["stats", "-J"], *there)
    assert (code, err) == (0, "") and sum(json.loads(line)["messages"] for line in out.splitlines()) == 4
    assert "web" in work(broker, ["stats", "--by", "tag"], *there)[1]
    assert work(broker, ["get", "--key", "k1", "-f", "%s\n"], *there)[:2] == (0, "one\ntwo\n")
    code, _, err = work(broker, ["get", "--id", "7F00000100002A9F0000000000FF0000"], *there)
    assert (code, err.count("has the id")) == (exit_codes.NOT_FOUND, 1)
    assert work(broker, ["export", "-o", tmp_path / "x.csv"], *there)[0] == 0
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 5
    code, out, err = work(broker, ["consume", "-g", "billing", "-o", "beginning", "-c", "4"], *there)
    assert (code, err, len(out.splitlines())) == (0, "", 4)


@pytest.fixture
def topic(secured, work, account):
    """Create the topic at the plain broker, and wait until the name server knows it."""
    deadline = time.monotonic() + 20
    if work(secured["plain"], ["stats"], *account)[0] != 0:
        assert work(secured["plain"], ["put"], *account)[0] == 0
    while work(secured["plain"], ["stats"], *account)[0] != 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_account_is_missing_or_wrong(secured, topic, work, account, monkeypatch, command):
    code, out, err = work(secured["plain"], command)
    assert (code, out, err.count("\n")) == (exit_codes.COULD_NOT, "", 1), err
    assert "No accessKey is configured" in err
    monkeypatch.setenv("ROCKETC_SECRET_KEY", "another secret")
    code, out, err = work(secured["plain"], command, *account)
    assert (code, out, err.count("\n")) == (exit_codes.COULD_NOT, "", 1), err
    assert "Check signature failed for accessKey=operators" in err and "secret" not in err


@pytest.mark.parametrize("command", COMMANDS)
def test_tls_is_missing_or_another_one(secured, work, account, command):
    code, out, err = work(secured["tls"], command, *account)
    assert (code, out, err.count("\n")) == (exit_codes.COULD_NOT, "", 1), err
    assert "it may accept only TLS" in err
    code, out, err = work(secured["tls"], command, *account, "--tls")
    assert (code, out, err.count("\n")) == (exit_codes.COULD_NOT, "", 1), err
    assert "is from an authority that is not trusted here" in err
