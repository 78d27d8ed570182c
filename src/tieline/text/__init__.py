"""What a terminal may show, and what a model may read."""

from tieline.text.context import Rendered, Shown, model_context, parse_context
from tieline.text.terminal import LABEL_COLUMNS_MAX, display_width, label, printable, wrapped

__all__ = [
    "LABEL_COLUMNS_MAX",
    "Rendered",
    "Shown",
    "display_width",
    "label",
    "model_context",
    "parse_context",
    "printable",
    "wrapped",
]
