"""A root's private socket: where it is, whose it is, and when it may be taken away."""

from tieline.shell.endpoint.address import (
    CONTROL_SUFFIX,
    NATIVE_SUFFIX,
    connect,
    connect_refusal,
    socket_path,
    verify_target,
)
from tieline.shell.endpoint.listening import Endpoint, bind_endpoint
from tieline.shell.endpoint.owners import Host, hosts, owner_state, sweep
from tieline.shell.endpoint.window import WindowEndpoint, bind_window, verify_window

__all__ = [
    "CONTROL_SUFFIX",
    "NATIVE_SUFFIX",
    "Endpoint",
    "Host",
    "WindowEndpoint",
    "bind_endpoint",
    "bind_window",
    "connect",
    "connect_refusal",
    "hosts",
    "owner_state",
    "socket_path",
    "sweep",
    "verify_target",
    "verify_window",
]
