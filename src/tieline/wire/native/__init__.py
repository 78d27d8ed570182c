"""The native wire: the public profile of signed JSON-RPC links between roots."""
