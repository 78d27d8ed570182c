"""Shared resources at run time: deciding, waiting, launching, and who may ask for what."""
