"""Result codes, and the only way from them to Python exceptions; for Cython only."""

from rocketc.errors import FILE_TEXTS as FILE_TEXTS
