"""Signatures, compared with those that RocketMQ's own clients and brokers of 4.9.7 and 5.3.3 computed."""

import asyncio
import json
import random

import pytest
from simulation import virtual
from support.native import ROOT

from rocketc.remoting.channel import Channel
from rocketc.remoting.command import Command, Flag
from rocketc.remoting.server import Answer, Server
from rocketc.remoting.signing import UNIQUE_KEY_QUERY, Credentials, Signer, signature, signed_text, signing_key

VECTORS = json.loads((ROOT / "tests/golden/acl-vectors.json").read_text(encoding="utf-8"))["signatures"]


def of(name):
    return next(one for one in VECTORS if one["name"] == name)


@pytest.mark.parametrize("one", VECTORS, ids=lambda one: one["name"])
def test_signatures_of_rocketmq(one):
    fields, body = one["ext_fields_without_signature"], bytes.fromhex(one["body_hex"] or "")
    content = signed_text(fields) + body
    assert content.hex() == one["content_hex"]
    assert signature(signing_key(one["secretKey"]), content) == one["signature"]
    added = {"AccessKey", "SecurityToken"}
    command = Command(one["code"], {name: text for name, text in fields.items() if name not in added}, body)
    Signer(Credentials(one["accessKey"], one["secretKey"], one["securityToken"]))(command)
    assert command.fields == {**fields, "Signature": one["signature"]}


@pytest.mark.parametrize("one", VECTORS, ids=lambda one: one["name"])
def test_signing_again_gives_the_same(one):
    """A second try of the same request has an old signature, which is not part of the content."""
    command = Command(one["code"], dict(one["ext_fields_without_signature"]), bytes.fromhex(one["body_hex"] or ""))
    for _ in range(2):
        Signer(Credentials(one["accessKey"], one["secretKey"], one["securityToken"]))(command)
        assert command.fields["Signature"] == one["signature"]


def test_old_brokers_leave_the_flag_of_unique_keys_out():
    one = of("query-message-unique-key")
    fields, credentials = one["ext_fields_without_signature"], Credentials(one["accessKey"], one["secretKey"])
    without = {name: text for name, text in fields.items() if name != UNIQUE_KEY_QUERY}
    with_flag, plain, new = Command(12, dict(fields)), Command(12, dict(without)), Command(12, dict(fields))
    Signer(credentials, old_broker=True)(with_flag)
    Signer(credentials)(plain)
    Signer(credentials)(new)
    assert with_flag.fields[UNIQUE_KEY_QUERY] == "true"  # it is sent all the same
    assert with_flag.fields["Signature"] == plain.fields["Signature"] != new.fields["Signature"]


def test_the_zone_is_signed():
    command = Command(38, {"consumerGroup": "shop"})
    Signer(Credentials("RocketMQ", "12345678"), zone=("east", "isolated"))(command)
    assert (command.fields["__ZONE_NAME"], command.fields["__ZONE_MODE"]) == ("east", "isolated")
    assert signed_text(command.fields) == b"RocketMQisolatedeastshop"


def test_names_are_ordered_as_java_does():
    """By UTF-16 code units: U+1F600 is two units from U+D800 on, before U+FF21."""
    assert signed_text({"\uff21": "3", "\U0001f600": "2", "a": "1", "_": "0", "Z": "-"}) == b"-0123"


def test_halves_of_surrogate_pairs_do_not_fail():
    assert signed_text({"\ud800": "\udc00", "a": "b"}) == b"b?"


@pytest.mark.parametrize("secret", ["s3cret-key", "密钥密钥密钥"])
def test_secrets_are_in_no_text(secret):
    credentials = Credentials("RocketMQ", secret, "token-of-the-account")
    signer = Signer(credentials)
    for text in (repr(credentials), str(credentials), repr(signer), f"{signer}", repr(signing_key(secret))):
        assert secret not in text and "token-of" not in text


def test_a_channel_signs_all_that_it_sends():
    seen = []

    class Note:
        codes = (30,)

        def process(self, call):
            seen.append(call.command)
            return Answer(values={"offset": 1})

    async def main():
        chance, server = random.Random(1), Server([Note()])

        async def connect(factory):
            virtual.link(server.connection(), factory(), chance)

        signer = Signer(Credentials("RocketMQ", "12345678"))
        channel = Channel(connect, chance, hook=signer)
        offset = {"topic": "t", "queueId": 0}
        await channel.call(30, offset, asyncio.get_running_loop().time() + 5)
        await channel.send(30, offset, asyncio.get_running_loop().time() + 5)
        await asyncio.sleep(1)
        channel.close()
        await server.close()

    virtual.run(main())
    assert [command.flag & Flag.ONEWAY for command in seen] == [0, Flag.ONEWAY]
    expected = signature(signing_key("12345678"), b"RocketMQ0t")
    assert [command.fields["Signature"] for command in seen] == [expected] * 2
