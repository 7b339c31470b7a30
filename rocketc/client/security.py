"""How a client proves who it is, and whom it trusts: an account that signs the requests, and TLS.

Source: RocketMQ AclUtils.getAclRPCHook, TlsSystemConfig.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from rocketc.remoting.signing import Credentials
from rocketc.remoting.tls_contexts import client_context
from rocketc.remoting.tls_settings import Identity, TlsMode, TlsSettings

__all__ = ["Credentials", "Tls", "read_credentials", "tls_context"]

_FILE_MOST = 1 << 20


@dataclass(frozen=True)
class Tls:
    """The settings of a client's TLS connections. The password is in no text of repr().

    ca            file of the authorities in PEM that servers' certificates are checked against; None: the system's
    cert, key     files in PEM that this client shows (mutual TLS); the key may be in the file of the certificate
    key_password  of an encrypted key
    check_host    the certificate must be for the host of the address

    >>> Tls(ca="/etc/rocketmq/ca.pem", key_password="a secret")
    Tls(ca='/etc/rocketmq/ca.pem', cert=None, key=None, check_host=True)
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: str = field(default="", repr=False)
    check_host: bool = True


def tls_context(tls: bool | Tls | ssl.SSLContext) -> ssl.SSLContext | None:
    """Return what connections need for TLS; None for plain ones.

    tls  True: TLS with the authorities of the system
    Raises ValueError, which names the files, if they cannot be used.

    >>> tls_context(True).check_hostname, tls_context(False)
    (True, None)
    """
    if isinstance(tls, ssl.SSLContext):
        return tls
    if isinstance(tls, bool):
        if not tls:
            return None
        tls = Tls()
    if not isinstance(tls, Tls):
        raise TypeError(f"tls: expected bool, Tls or ssl.SSLContext, got {type(tls).__name__}")
    if tls.key and not tls.cert:
        raise ValueError(f"{tls.key}: give the certificate of this key, too")
    identity = Identity(tls.key or "", tls.cert or "", tls.key_password, is_checked=True, trust_path=tls.ca or "")
    return client_context(TlsSettings(TlsMode.DISABLED, False, client=identity), check_host=tls.check_host)


def read_credentials(path: str) -> Credentials:
    """Read an account from a file with `accessKey` and `secretKey`, as the conf/tools.yml of RocketMQ.

    Raises OSError, or ValueError with the path; no text contains the secret.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tools.yml"
    >>> _ = path.write_text("accessKey: operators\\nsecretKey: a long secret\\n")
    >>> read_credentials(str(path))
    Credentials(access_key='operators')
    """
    try:
        import yaml
    except ImportError:
        raise ValueError(f"{path}: to read it needs the package pyyaml: pip install 'rocketc[acl]'") from None
    with open(path, "rb") as file:
        text = file.read(_FILE_MOST)
    try:
        data = yaml.safe_load(text)
    except Exception:  # pyyaml also raises KeyError, IndexError and others; its texts have lines of the file
        raise ValueError(f"{path}: this is not YAML") from None
    members = data if isinstance(data, dict) else {}
    found = [members.get(name) for name in ("accessKey", "secretKey", "securityToken")]
    texts = [str(one) if type(one) is int else one for one in found]  # RocketMQ takes a number as a text, too
    access_key, secret_key, token = (one.strip() if isinstance(one, str) else None for one in texts)
    if not access_key or not secret_key:
        raise ValueError(f"{path}: the file needs accessKey and secretKey; put quotes around them")
    return Credentials(access_key, secret_key, token or None)
