"""Small programs that run outside of Tieline's own processes: in another language, or without its imports.

Nothing here imports the rest of the package, and nothing of the package imports this.

Source: specification of the intercom, "Supported non-model client"; docs/javascript-client.md.
"""

import os
from typing import Final

__all__ = ["INTERCOM_CLIENT"]

INTERCOM_CLIENT: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "intercom-client.mjs")
"""Absolute path of the JavaScript module that joins the intercom as a client that no model drives."""
