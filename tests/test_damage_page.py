"""docs/damage.md names every reason, and no other."""

import re
from pathlib import Path

from rocketc import _status

PAGE = Path(__file__).parents[1] / "docs/damage.md"


def test_page_names_every_reason():
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert rows == list(_status._REASONS.values())
