"""Our brokers and name servers with an account and TLS, for tests of clients."""

import shutil

import pytest

import rocketc
from support.certificates import Certificates

ACCESS_KEY, SECRET = "operators", "a long secret"
LOCAL = "IP:127.0.0.1,DNS:localhost"


class Secured:
    """Brokers by kind, each started when it is first asked for. All have the account; close() ends them.

    plain       without TLS
    tls         with TLS only, and a certificate for this machine
    mutual      and it wants a certificate
    expired     its certificate has expired
    other host  its certificate is for another host
    """

    def __init__(self, make_folder):
        if shutil.which("openssl") is None:
            pytest.skip("the command openssl is not installed")
        self._make_folder = make_folder
        self.certificates = Certificates(make_folder("certificates"))
        self.certificates.sign("local", host=LOCAL)
        self.certificates.sign("late", days=-1, host=LOCAL)
        self._brokers = {}

    def file(self, name):
        """The path of a certificate; of its key for a name such as client.key."""
        base, _, kind = name.partition(".")
        return str(self.certificates.key(base) if kind else self.certificates.cert(base))

    def __getitem__(self, kind):
        if kind not in self._brokers:
            self._brokers[kind] = rocketc.Broker(**self._settings(kind))
            self._brokers[kind].start()
        return self._brokers[kind]

    def _settings(self, kind):
        folder = self._make_folder("home")
        (folder / "conf").mkdir()
        account = f"{{accessKey: {ACCESS_KEY}, secretKey: {SECRET}, admin: true}}"
        (folder / "conf/plain_acl.yml").write_text(f"accounts: [{account}]")
        settings = {"acl_enable": True, "rocketmq_home": str(folder)}
        if kind == "plain":
            return settings | {"tls_server_mode": "disabled", "tls_config_file": ""}
        text = self.certificates.properties({"expired": "late", "other host": "server"}.get(kind, "local"))
        if kind == "mutual":
            text = self.certificates.mutual().replace("/server.", "/local.")
            text += f"tls.client.keyPath={self.file('client.key')}\ntls.client.certPath={self.file('client')}\n"
        (folder / "tls.properties").write_text(text)
        return settings | {"tls_server_mode": "enforcing", "tls_config_file": str(folder / "tls.properties")}

    def close(self):
        for broker in self._brokers.values():
            broker.close()
