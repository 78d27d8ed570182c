"""What a broker keeps for those who are gone, and finds again after its own end."""

from tieline.store.mail.journal import MailJournal

__all__ = ["MailJournal"]
