"""The keywords of a broker."""

import dataclasses

import pytest

from rocketc.broker.config import BrokerConfig
from rocketc.broker.settings import _ELSEWHERE, TEMPORARY, BrokerFields, split_fields, temporary_config
from rocketc.config import StoreConfig


def names(kind):
    return {field.name for field in dataclasses.fields(kind)}


def test_the_keywords_for_type_checkers_are_those_of_both():
    ours = set(BrokerFields.__annotations__) - set(StoreConfig.__dataclass_fields__)
    assert ours == names(BrokerConfig) - set(_ELSEWHERE)
    types = {field.name: field.type for field in dataclasses.fields(BrokerConfig)}
    found = {name: kind for name, kind in BrokerFields.__dict__["__annotations__"].items() if name in ours}
    assert {name: getattr(kind, "__forward_arg__", kind) for name, kind in found.items()} == {
        name: types[name] for name in ours
    }


def test_no_field_is_in_both():
    assert names(BrokerConfig) & names(StoreConfig) == set()


def test_every_default_is_a_valid_value():
    fields = {field.name: field.default for field in dataclasses.fields(BrokerConfig) if field.name not in _ELSEWHERE}
    assert split_fields("Broker()", fields) == (fields, {})


@pytest.mark.parametrize("name", TEMPORARY)
def test_a_given_field_is_kept_in_a_temporary_store(name):
    config = StoreConfig()
    assert getattr(temporary_config(config, [name]), name) == getattr(config, name)
    assert getattr(temporary_config(config), name) == TEMPORARY[name]
