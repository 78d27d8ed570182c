"""Conversations as text: what each end says and hears, in order."""
