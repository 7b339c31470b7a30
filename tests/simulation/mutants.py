"""Brokers that are broken in one way each: a simulation that proves something finds all of them."""

from collections.abc import Callable

MUTANTS: dict[str, Callable[[], object]] = {}
