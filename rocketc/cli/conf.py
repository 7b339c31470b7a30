"""A broker.conf on the command line."""

from __future__ import annotations

import warnings

import click

from rocketc.config import StoreConfig
from rocketc.errors import StoreIOError

# For commands that make files as those that are there, unless a broker.conf tells their sizes.
sizes_option = click.option(
    "--conf", type=click.Path(), metavar="FILE",
    help="The broker.conf: sizes of files, paths, delay levels. Without it sizes are those that the files there have.",
)  # fmt: skip


def read_conf(path: str) -> StoreConfig:
    """The settings of a broker.conf that are known here. Raises click.UsageError, StoreIOError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return StoreConfig.from_properties(path)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise StoreIOError(error.errno, error.strerror, error.filename) from None
