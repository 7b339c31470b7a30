"""rocketc broker: the file broker.conf, the lines and exit codes of errors, and how it ends."""

import os
import signal
import socket
import struct
import subprocess
import threading

import pytest
from interop.asking import Asking
from support import permissions
from support.command import start

import rocketc
from rocketc.remoting.command import Command
from rocketc.tables.topics import Topics

PORTS = ("--port", "0", "--namesrv-port", "0")
NO_MASTER = "brokerRole is SLAVE, but neither a name server (namesrvAddr) nor haMasterAddress says where the master is"

# conf/broker.conf of RocketMQ, and what differs from it in conf/2m-2s-async and conf/2m-2s-sync.
BROKER_CONF = """\
# Licensed to the Apache Software Foundation (ASF) under one or more
# contributor license agreements.
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""


@pytest.fixture
def conf(tmp_path):
    """conf(**settings): the path of a broker.conf with some settings changed or added."""

    def write(**settings):
        path = tmp_path / "broker.conf"
        path.write_text(BROKER_CONF + "".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    return write


@pytest.fixture
def broker():
    """broker(*args): a broker that serves, and the lines that it has written."""
    started = []

    def begin(*args, **options):
        process = start("broker", *args, **options)
        started.append(process)
        lines = []
        while not lines or "Ctrl-C ends it" not in lines[-1]:
            lines.append(process.stderr.readline().decode())
            assert lines[-1], lines
        return process, lines

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def refused(run, path, *args):
    """The exit code and the only line of a broker that does not start; no store is made at the path."""
    code, out, err = run("broker", path, *PORTS, *args)
    assert out == "" and err.startswith("rocketc: ") and err.count("\n") == 1
    assert not path.is_dir()
    return code, err.removeprefix("rocketc: ").rstrip("\n")


# ---------------------------------------------------------------- broker.conf


@pytest.mark.parametrize("changes", [{}, {"brokerName": "broker-b"}], ids=["broker-a", "broker-b"])
def test_rocketmqs_own_file_starts_it(broker, conf, tmp_path, changes):
    file = conf(listenPort=0, bindAddress="127.0.0.1", storePathRootDir=tmp_path / "store", **changes)
    process, lines = broker("-c", file, "--namesrv-port", "0")
    name = changes.get("brokerName", "broker-a")
    assert [line.partition(": ")[2] for line in lines[:-1]] == [line.partition(": ")[2] for line in lines[:1]]
    assert f"{name} registered with id 0" in lines[0]
    assert str(tmp_path / "store") in lines[-1]
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert name in Topics(tmp_path / "store")  # each broker has the topic of its name


def test_a_changed_setting_is_in_the_file(broker, conf, tmp_path):
    file = conf(listenPort=0, bindAddress="127.0.0.1", storePathRootDir=tmp_path / "store")
    before = file.read_text()
    for _ in range(2):  # the second start reads the changed file
        process, lines = broker("--conf", file, "--namesrv-port", "0")
        asking = Asking(lines[-1].partition("broker ")[2].partition(",")[0])
        code, _, body = asking.ask("UPDATE_BROKER_CONFIG", b"fileReservedTime=24\ndiskMaxUsedSpaceRatio=70")
        assert code == 0, body
        code, _, body = asking.ask("GET_BROKER_CONFIG")
        assert {b"fileReservedTime=24", b"diskMaxUsedSpaceRatio=70"} <= set(body.splitlines())
        asking.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        expected = before.replace("fileReservedTime = 48", "fileReservedTime = 24") + "diskMaxUsedSpaceRatio=70\n"
        assert file.read_text() == expected


def test_unknown_keys_are_one_line(run, conf, tmp_path):
    """The other keys are used: here one of them is an error."""
    code, out, err = run(
        "broker", tmp_path / "store", *PORTS, "-c", conf(sendThreadPoolNums=4, brokerNmae="x", brokerId=1)
    )
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first == f"rocketc: {tmp_path}/broker.conf: not used: sendThreadPoolNums, brokerNmae"
    assert second.startswith("rocketc: brokerId is 1")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"brokerId": "x"}, "brokerId is 'x', which is not a whole number"),
        ({"flushDiskType": "QUICK"}, "flushDiskType is 'QUICK'; allowed are ASYNC_FLUSH, SYNC_FLUSH"),
        ({"brokerRole": "MASTER"}, "brokerRole is 'MASTER'; allowed are ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ({"listenPort": 65536}, "listenPort is 65536; allowed are 0 to 65535"),
        ({"longPollingEnable": "yes"}, "longPollingEnable is 'yes'; allowed are true and false"),
    ],
)
def test_a_wrong_value_is_one_line(run, conf, tmp_path, settings, says):
    assert refused(run, tmp_path / "store", "-c", conf(**settings)) == (2, f"{tmp_path}/broker.conf: {says}")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tls.server.mode": "enforced"}, "tls.server.mode is 'enforced'; use one of disabled, permissive, enforcing"),
        ({"tls.config.file": "/missing"}, "/missing: No such file or directory; it is the file of tls.config.file"),
        ({"tls.server.certPath": "/c", "tls.server.keyPath": "/k"}, "/c or /k: No such file or directory"),
        ({"aclEnable": "true", "rocketmqHome": "/missing", "rocketmq.acl.plain.file": "/x\\u0000"},
         "aclEnable is true, and rocketmqHome is not a folder: /missing"),
    ],
)  # fmt: skip
def test_wrong_settings_of_security_are_one_line(run, conf, tmp_path, settings, says):
    code, out, err = run("broker", tmp_path / "store", *PORTS, "-c", conf(brokerIP1="127.0.0.1", **settings))
    assert (code, out, err) == (2, "", f"rocketc: {says}\n")


@pytest.mark.parametrize("protected", ["", "aclEnable", "tls", "half"])
def test_it_warns_if_everyone_can_read_and_write(broker, conf, tmp_path, certificates, protected):
    settings = {"brokerIP1": "127.0.0.1"}
    if protected == "aclEnable":
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf/plain_acl.yml").write_text("accounts: [{accessKey: account, secretKey: '12345678'}]")
        settings |= {"aclEnable": "true", "rocketmqHome": tmp_path}
    elif protected:
        text = certificates.mutual() if protected == "tls" else certificates.properties()
        (tmp_path / "tls.properties").write_text(text)
        settings |= {"tls.server.mode": "enforcing", "tls.config.file": tmp_path / "tls.properties"}
    process, lines = broker(tmp_path / "store", *PORTS, "-c", conf(**settings))
    process.send_signal(signal.SIGTERM)
    rest = process.stderr.read().decode()
    warning = "everyone who reaches 0.0.0.0 can read and write: neither ACL nor TLS with certificates of clients is on"
    assert (warning in rest) is (protected in ("", "half"))
    assert "12345678" not in rest + "".join(lines)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"brokerRole": "SLAVE"}, "brokerRole is SLAVE, but brokerId is 0: the master has id 0; "
         "set brokerId to 1 or more"),
        ({"brokerId": -1, "brokerRole": "SLAVE"}, "brokerRole is SLAVE, but brokerId is -1: the master has id 0; "
         "set brokerId to 1 or more"),
        ({"brokerId": 1}, "brokerId is 1, but brokerRole is ASYNC_MASTER: a master has id 0; set brokerId=0, or "
         "brokerRole=SLAVE"),
        ({"brokerId": -1}, "brokerId is -1, but brokerRole is ASYNC_MASTER: a master has id 0; set brokerId=0, or "
         "brokerRole=SLAVE"),
        ({"brokerId": 1, "brokerRole": "SLAVE"}, NO_MASTER),
        ({"brokerId": 1, "brokerRole": "SLAVE", "haMasterAddress": ""}, NO_MASTER),
        ({"brokerId": 1, "brokerRole": "SLAVE", "haMasterAddress": "10.0.0.7"}, "haMasterAddress: '10.0.0.7' is not an "
         "address such as 10.0.0.1:9876"),
    ],
)  # fmt: skip
def test_a_role_that_does_not_fit(run, conf, tmp_path, settings, says):
    """RocketMQ's conf/2m-2s-async/broker-a-s.properties lacks the address of a name server."""
    file = conf(bindAddress="127.0.0.1", **settings)
    assert refused(run, tmp_path / "store", "-c", file) == (2, says)


@pytest.mark.parametrize(("name", "says"), [("none", "No such file or directory"), ("", "Is a directory")])
def test_a_file_that_cannot_be_read(run, tmp_path, name, says):
    path = tmp_path / name
    assert refused(run, tmp_path / "store", "-c", path) == (3, f"{path}: {says}")


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.1.2.3", "::1"])
def test_a_loopback_address_is_not_registered_elsewhere(run, conf, tmp_path, ip):
    args = ("-c", conf(brokerIP1=ip), "--name-server", "127.0.0.1:9876;192.0.2.7:9876")
    code, line = refused(run, tmp_path / "store", *args)
    assert (code, line) == (
        2,
        f"brokerIP1 is {ip}: clients of the name server 192.0.2.7:9876 can't reach it; set brokerIP1 to an address of "
        "this machine",
    )


@pytest.mark.parametrize("address", ["nowhere", "host:", ":9876", "host:99999", "host:x"])
def test_a_wrong_address_of_a_name_server(run, tmp_path, address):
    args = ("--name-server", address, "--settings", '{"broker_ip1": "192.0.2.1", "bind_address": "127.0.0.1"}')
    code, out, err = run("broker", tmp_path / "store", *PORTS, *args)
    assert (code, out, err) == (2, "", f"rocketc: '{address}' is not an address such as 10.0.0.1:9876\n")


@pytest.mark.parametrize("option", ["--port", "--namesrv-port"])
def test_a_port_in_use(run, tmp_path, option):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, line = refused(run, tmp_path / "store", option, port)
    assert (code, line) == (3, f"127.0.0.1:{port}: Address already in use")


def test_the_vip_port_in_use(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, line = refused(run, tmp_path / "store", "--port", port + 2)
    assert (code, line) == (3, f"127.0.0.1:{port}: Address already in use")


# ---------------------------------------------------------------- the store


def test_a_store_in_use(run, tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20):
        code, out, err = run("broker", tmp_path, *PORTS)
    assert (code, out) == (3, "") and err.count("\n") == 1
    assert err == f"rocketc: {tmp_path} is open for writing already, in this process\n"


def test_a_store_that_is_a_file(run, tmp_path):
    (tmp_path / "file").write_text("")
    says = "this is a file, not a folder; give the store's root folder, which contains commitlog"
    for path in (tmp_path / "file", tmp_path / "file" / "store"):
        assert refused(run, path) == (3, f"{tmp_path}/file: {says}")


def test_no_permission(run, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    with permissions.applied():
        code, line = refused(run, folder / "store")
    assert (code, line) == (3, f"{folder}/store: Permission denied")


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_it_in_order(broker, tmp_path, number):
    process, _ = broker(tmp_path, *PORTS)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b"")
    assert f"{number.name}: ending" in err.decode() and b"rocketc: the broker ends\n" in err
    assert not (tmp_path / "abort").exists()  # the store is closed


@pytest.fixture
def half_silent():
    """The address of a name server that accepts one registration, and answers nothing else."""

    def serve():
        peer, _ = listener.accept()
        with peer, peer.makefile("rb") as file:
            size, head = struct.unpack(">II", file.read(8))
            rest = file.read(size - 4)
            asked = Command.decode(head >> 24, rest[: head & 0xFFFFFF], rest[head & 0xFFFFFF :])
            peer.sendall(Command(0, {}, b"", asked.opaque, 1).encode())
            file.read()  # until the broker is gone

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(20)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_it_at_once(half_silent, broker, tmp_path, number):
    """After the first signal it waits until the name server answers. The second signal does not wait."""
    process, _ = broker(tmp_path, "--port", "0", "--name-server", half_silent)
    process.send_signal(signal.SIGTERM)
    while b": ending" not in process.stderr.readline():
        pass
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    assert (tmp_path / "abort").exists()  # the store is not closed


def test_a_reader_of_its_log_that_goes(broker, tmp_path):
    """`rocketc broker STORE 2>&1 | head -1`: it serves on, and ends in order."""
    process, _ = broker(tmp_path, *PORTS)
    process.stderr.close()
    process.stdout.close()
    process.send_signal(signal.SIGTERM)
    process.stderr = process.stdout = None
    assert process.wait(20) == 0
    assert not (tmp_path / "abort").exists()


def test_a_reader_of_its_line_that_goes(tmp_path):
    """The program that started it ended before it read the line of --json."""
    ours, its = os.pipe()
    os.close(ours)
    with start("broker", tmp_path, *PORTS, "--json", stdout=its, stderr=subprocess.PIPE) as process:
        os.close(its)
        assert process.communicate(timeout=20)[1] == b""
    assert process.returncode == 0
    assert not (tmp_path / "abort").exists()
