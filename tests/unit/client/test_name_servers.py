"""The addresses of name servers, as users write them."""

import pytest

from rocketc.client.name_servers import name_server_addresses


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.1:9876", ["10.0.0.1:9876"]),
        ("a:1;b:2", ["a:1", "b:2"]),
        ("a:1, b:2;;a:1", ["a:1", "b:2"]),
        ("[::1]:9876", ["[::1]:9876"]),
    ],
)
def test_addresses(text, found):
    assert name_server_addresses(text) == found


def test_addresses_of_the_environment(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert name_server_addresses() == ["127.0.0.1:9876"]
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert name_server_addresses() == ["a:1", "b:2"]
    assert name_server_addresses("c:3") == ["c:3"]


@pytest.mark.parametrize("text", ["", ";", "a", "a:b", ":1", "a:99999"])
def test_wrong_addresses(text):
    with pytest.raises(ValueError, match="address"):
        name_server_addresses(text)
