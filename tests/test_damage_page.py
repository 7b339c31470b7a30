"""docs/damage.md names every reason, those of files too, and no other."""

import re
from pathlib import Path

from rocketc import _status
from rocketc.report.text import REASONS

PAGE = Path(__file__).parents[1] / "docs/damage.md"


def test_page_names_every_reason():
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert [row for row in rows if row in _status._REASONS.values()] == list(_status._REASONS.values())
    assert sorted(rows) == sorted(REASONS)
