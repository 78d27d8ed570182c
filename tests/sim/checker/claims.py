"""One statement about a history, counted, and kept when it does not hold.

Source: reference/reliability.md 2.4.
"""

__all__ = ["Claim"]


class Claim:
    """Counts what was claimed; `violations` holds a sentence for each claim that did not hold."""

    def __init__(self) -> None:
        self.count = 0
        self.violations: list[str] = []

    def __call__(self, is_true: bool, *parts: object) -> None:
        """Claim something; the parts make the sentence."""
        self.count += 1
        if not is_true:
            self.violations.append(" ".join(str(part) for part in parts))
