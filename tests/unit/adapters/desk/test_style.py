import re

from tieline.adapters.desk.lines import ROLES
from tieline.adapters.desk.style import SHEET


def test_every_role_has_a_look_that_needs_no_colour() -> None:
    """What matters differs without colours, too; no two colours of roles are red against green."""
    for role in ROLES:
        assert f".lines--{role}" in SHEET
    for role in ("strong", "warn", "bad", "cursor"):
        rule = re.search(rf"\.lines--{role} {{([^}}]*)}}", SHEET)
        assert rule is not None
        assert "text-style" in rule[1], role
    assert not {"#ff0000", "#00ff00"}.intersection(re.findall(r"#[0-9a-f]{6}", SHEET))
