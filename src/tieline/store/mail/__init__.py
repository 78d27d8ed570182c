"""What a broker keeps for those who are gone, finds again after its own end, and shows."""

from tieline.store.mail.journal import MailJournal
from tieline.store.mail.shown import ShownRows

__all__ = ["MailJournal", "ShownRows"]
