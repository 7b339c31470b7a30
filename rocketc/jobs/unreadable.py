"""The small files of a store that can't be read: the checkpoint, and the tables in its folder `config`."""

from __future__ import annotations

import os

from rocketc.files.paths import refusal_of


def unreadable_files(root: str) -> list[str]:
    """Return a text with path and reason for the checkpoint and each table that exist and can't be read.

    >>> import tempfile
    >>> unreadable_files(tempfile.mkdtemp())
    []
    """
    paths = [os.path.join(root, "checkpoint")]
    config = os.path.join(root, "config")
    try:
        paths += [os.path.join(config, name) for name in sorted(os.listdir(config)) if name.endswith(".json")]
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        return [*filter(None, map(refusal_of, paths)), f"{config}: {error.strerror}"]
    return [*filter(None, map(refusal_of, paths))]
