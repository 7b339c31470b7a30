"""Certificates for tests, made by the command openssl. `Certificates(folder)` makes what its names say."""

import ssl
import subprocess
from pathlib import Path

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
_PASSWORD = "the-password"


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, stdin=subprocess.DEVNULL, capture_output=True)


class Certificates:
    """Files of keys and certificates. A name such as "server" has server.key (PKCS#8) and server.pem.

    ca, foreign       authorities
    server, client    signed by ca
    expired           signed by ca, expired yesterday
    stranger          signed by foreign
    locked            as server, with an encrypted key
    """

    password = _PASSWORD

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("ca", "foreign"):
            openssl("req", "-x509", *_KEY, "-keyout", self.key(name), "-out", self.cert(name), "-days", 36500,
                    "-subj", f"/CN={name}")  # fmt: skip
        self.sign("server")
        self.sign("client")
        self.sign("expired", days=-1)
        self.sign("stranger", by="foreign")
        openssl(
            "pkcs8", "-topk8", "-in", self.key("server"), "-out", self.key("locked"), "-passout", f"pass:{_PASSWORD}"
        )
        self.cert("locked").write_bytes(self.cert("server").read_bytes())

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def cert(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def sign(self, name: str, by: str = "ca", days: int = 3650, host: str = "") -> None:
        """Make a new key, and its certificate.

        host  that it is for, such as IP:127.0.0.1
        """
        request = self.folder / f"{name}.csr"
        openssl("req", *_KEY, "-keyout", self.key(name), "-out", request, "-subj", f"/CN={name}")
        hosts = self.folder / f"{name}.ext"
        hosts.write_text(f"subjectAltName={host}\n" if host else "")
        openssl("x509", "-req", "-in", request, "-CA", self.cert(by), "-CAkey", self.key(by), "-days", days,
                "-out", self.cert(name), "-extfile", hosts)  # fmt: skip

    def properties(self, name: str = "server", **others: object) -> str:
        """The lines of tls.properties for a server. A setting `a_b` is written as tls.a.b."""
        pairs = {"tls.server.keyPath": self.key(name), "tls.server.certPath": self.cert(name)}
        pairs |= {f"tls.{key.replace('_', '.')}": value for key, value in others.items()}
        return "".join(f"{key}={value}\n" for key, value in pairs.items())

    def mutual(self) -> str:
        trust = self.cert("ca")
        return self.properties(server_need_client_auth="require", server_authClient="true", server_trustCertPath=trust)

    def client_context(self, name: str = "", trusts: str = "ca", newest: bool = True) -> ssl.SSLContext:
        """The context of a client with a certificate, or without one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.cert(trusts))
        if name:
            context.load_cert_chain(self.cert(name), self.key(name))
        if not newest:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context
