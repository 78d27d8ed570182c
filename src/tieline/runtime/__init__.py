"""The kinds of process, wired; the door for adapters."""
