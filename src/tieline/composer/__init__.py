"""What a person types: recipients, references and content; one parser for every input."""

from tieline.composer.addressing import Instruction, Known, Letter, Reference, note, read
from tieline.composer.draft import Binding, Draft
from tieline.composer.mentions import Direct, Mention, direct, mentions, open_mention

__all__ = [
    "Binding",
    "Direct",
    "Draft",
    "Instruction",
    "Known",
    "Letter",
    "Mention",
    "Reference",
    "direct",
    "mentions",
    "note",
    "open_mention",
    "read",
]
