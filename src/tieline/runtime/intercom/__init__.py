"""A root on the intercom: its brokers, the sessions there, the tool, and what companions ask.

Nothing is imported here: who is not on that wire does not pay for it.
"""
