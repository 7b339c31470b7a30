"""The check of each request: its signature, and what its account may do.

Source: RocketMQ PlainAccessValidator, PlainPermissionManager.validate of 4.9.7.
"""

from __future__ import annotations

import hmac
from typing import Any

from rocketc._layout import RETRY_PREFIX
from rocketc.acl.accounts import Account, Permission
from rocketc.acl.needs import ACL_CODES, ADMIN_CODES, ReadHeartbeat, needs_of
from rocketc.acl.rule_files import Rules
from rocketc.errors import BadRequestError
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.server import Answer
from rocketc.remoting.signing import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, signature, signed_text

FIELDS_MOST = 128  # of a request: more are not sorted, so that they cost nothing
_EXCEPTION = "org.apache.rocketmq.acl.common.AclException"  # clients look for it in the remark
_REMARK_MOST = 1000  # characters
_QUERY_MESSAGE = 12


class _Denied(Exception):
    """The request is refused; the text is for the client."""


class AccessValidator:
    """Checks requests. It is the check of a Server.

    rules           of all files; setting the attribute changes them at once for all later requests
    read_heartbeat  see needs_of()
    trace_topic     each account may send to it

    >>> AccessValidator(Rules(), lambda body: (), "RMQ_SYS_TRACE_TOPIC")(Command(38), ("10.0.0.1", 4000)).remark
    'org.apache.rocketmq.acl.common.AclException: No accessKey is configured'
    """

    def __init__(self, rules: Rules, read_heartbeat: ReadHeartbeat, trace_topic: str) -> None:
        self.rules = rules
        self._read_heartbeat = read_heartbeat
        self._trace_topic = trace_topic

    def __call__(self, command: Command, peer: Any) -> Answer | None:
        """Return None for a request that is allowed, or the answer to one that is not.

        peer  (address, port, ...) of its connection
        """
        try:
            self._check(self.rules, command, str(peer[0]) if peer else "")
        except (_Denied, BadRequestError) as error:
            return Answer(Code.SYSTEM_ERROR, remark=f"{_EXCEPTION}: {error}"[:_REMARK_MOST])
        return None

    def _check(self, rules: Rules, command: Command, address: str) -> None:
        """Raise _Denied or BadRequestError for a request that is not allowed. The order is RocketMQ's."""
        code, fields = command.code, command.fields
        may_be_white = code not in ACL_CODES
        if may_be_white and rules.white.matches(address):
            return
        access_key = fields.get(ACCESS_KEY)
        if access_key is None:
            raise _Denied("No accessKey is configured")
        account = rules.accounts.get(access_key)
        if account is None:
            raise _Denied(f"No acl config for {access_key}")
        if may_be_white and account.white.matches(address):
            return
        if len(fields) > FIELDS_MOST or not is_signed(command, account):
            raise _Denied(f"Check signature failed for accessKey={access_key}")
        self._check_permissions(command, account)

    def _check_permissions(self, command: Command, account: Account) -> None:
        needs = needs_of(command, self._read_heartbeat)
        if needs.get(self._trace_topic) == Permission.PUB:
            return
        if command.code in ADMIN_CODES and not account.is_admin:
            raise _Denied(
                f"Need admin permission for request code={command.code}, but accessKey={account.access_key} is not"
            )
        if account.is_admin and not account.perms:
            return
        for name, needed in needs.items():
            if not account.may(name, needed):
                is_group = name.startswith(RETRY_PREFIX)
                what = f"group:{name.removeprefix(RETRY_PREFIX)}" if is_group else f"topic:{name}"
                raise _Denied(f"No default permission for {what}")


def is_signed(command: Command, account: Account) -> bool:
    """Whether the signature of a request is the account's. Brokers before 5.1 leave _UNIQUE_KEY_QUERY out of the
    content, later ones do not; here both are valid.

    >>> is_signed(Command(38, {"AccessKey": "account", "Signature": "x"}), Account("account", "12345678"))
    False
    """
    given = command.fields.get(SIGNATURE, "").encode("utf-8", "replace")
    ways: list[tuple[str, ...]] = [()]
    if command.code == _QUERY_MESSAGE and UNIQUE_KEY_QUERY in command.fields:
        ways.append((UNIQUE_KEY_QUERY,))
    return any(
        hmac.compare_digest(signature(account.key, signed_text(command.fields, way), command.body).encode(), given)
        for way in ways
    )
