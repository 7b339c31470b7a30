"""The keywords of a broker."""

import dataclasses
from typing import get_type_hints

import pytest

from rocketc.broker.config import BrokerConfig
from rocketc.broker.settings import _ELSEWHERE, TEMPORARY, BrokerFields, split_fields, temporary_config
from rocketc.config import StoreConfig


def names(kind):
    return {field.name for field in dataclasses.fields(kind)}


def test_the_keywords_for_type_checkers_are_the_fields_of_both():
    fields = get_type_hints(BrokerFields)
    assert set(fields) - names(StoreConfig) == names(BrokerConfig) - set(_ELSEWHERE)
    of_broker = get_type_hints(BrokerConfig)
    assert all(fields[name] == of_broker[name] for name in names(BrokerConfig) - set(_ELSEWHERE))


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
