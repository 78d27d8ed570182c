"""A root on the intercom: its brokers, the sessions there, the tool, and what companions ask."""

from tieline.runtime.intercom.intercom import Intercom

__all__ = ["Intercom"]
