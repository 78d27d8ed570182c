"""The control wire: a root's door for local, short-lived processes of the same user."""
