"""Signatures of requests, as RocketMQ's access control checks them. One signer serves ACL 1.0 and ACL 2.0.

Source: RocketMQ AclClientRPCHook, AclUtils.combineRequestContent, AclSigner, SessionCredentials.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rocketc.remoting.command import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"  # of QUERY_MESSAGE; brokers before 5.1 leave it out of the content
ZONE_NAME = "__ZONE_NAME"
ZONE_MODE = "__ZONE_MODE"


@dataclass(frozen=True)
class Credentials:
    """An account. Its secrets are in no text that repr() makes.

    access_key      name of the account; at a broker with ACL 2.0 the name of the user
    secret_key      key of the signatures; at a broker with ACL 2.0 the password
    security_token  is sent with each request, if it is set; a broker does not check it

    >>> Credentials("RocketMQ", "12345678")
    Credentials(access_key='RocketMQ')
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def credentials_of(text: str) -> Credentials:
    """Return the account of a JSON object, as in RocketMQ's innerClientAuthenticationCredentials.

    Raises ValueError, whose text does not contain secrets.

    >>> credentials_of('{"accessKey": "slaves", "secretKey": "a long secret"}')
    Credentials(access_key='slaves')
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    names = ("accessKey", "secretKey", "securityToken")
    access_key, secret_key, token = (found.get(name) for name in names) if isinstance(found, dict) else [None] * 3
    if not (isinstance(access_key, str) and isinstance(secret_key, str) and access_key and secret_key):
        raise ValueError('it must be like {"accessKey": "NAME", "secretKey": "SECRET"}')
    return Credentials(access_key, secret_key, token if isinstance(token, str) and token else None)


def signed_text(fields: Mapping[str, str], without: Iterable[str] = ()) -> bytes:
    """Return the part of the signed content that comes from the fields; the body follows it.

    fields   extFields; the signature itself is left out
    without  names of other fields to leave out

    >>> signed_text({"topic": "orders", "AccessKey": "k", "Signature": "x", "queueId": "3"})
    b'k3orders'
    """
    left_out = {SIGNATURE, *without}
    names = sorted(name for name in fields if name not in left_out)
    if not "".join(names).isascii():
        names.sort(key=lambda name: name.encode("utf-16-be", "surrogatepass"))  # Java compares UTF-16 code units
    return "".join([fields[name] for name in names]).encode("utf-8", "replace")


def signing_key(secret_key: str) -> hmac.HMAC:
    """Return the start of all signatures of a secret key, for signature(). It is not changed there.

    >>> signature(signing_key("12345678"), b"content")
    '1BsW91JsORxjhwjLy6Ma1jP/kow='
    """
    return hmac.new(secret_key.encode("utf-8", "replace"), digestmod="sha1")


def signature(key: hmac.HMAC, *content: bytes) -> str:
    """Return the signature of a content, which may be in pieces.

    key  of signing_key()

    >>> signature(signing_key("12345678"), b"con", b"tent")
    '1BsW91JsORxjhwjLy6Ma1jP/kow='
    """
    made = key.copy()
    for piece in content:
        made.update(piece)
    return base64.b64encode(made.digest()).decode()


class Signer:
    """Signs requests: the hook of a Channel, which runs last, over the final fields.

    credentials  of the account
    zone         added to each request before it is signed: name and mode. RocketMQ's clients of 5.x add them after it,
                 and their signatures then fail
    old_broker   the broker is older than 5.1: it leaves _UNIQUE_KEY_QUERY out of the content

    >>> request = Command(38, {"consumerGroup": "shop"})
    >>> Signer(Credentials("RocketMQ", "12345678"))(request)
    >>> request.fields["Signature"]
    '5gDFxDzk6Lth2khJf5nm1mq3Bqk='
    """

    def __init__(
        self, credentials: Credentials, *, zone: tuple[str, str] | None = None, old_broker: bool = False
    ) -> None:
        self._key = signing_key(credentials.secret_key)
        self._added = {ACCESS_KEY: credentials.access_key}
        if credentials.security_token is not None:
            self._added[SECURITY_TOKEN] = credentials.security_token
        if zone is not None:
            self._added[ZONE_NAME], self._added[ZONE_MODE] = zone
        self._without = (UNIQUE_KEY_QUERY,) if old_broker else ()

    def __call__(self, command: Command) -> None:
        """Add the account and the signature to the fields of a request."""
        command.fields.update(self._added)
        command.fields[SIGNATURE] = signature(self._key, signed_text(command.fields, self._without), command.body)
