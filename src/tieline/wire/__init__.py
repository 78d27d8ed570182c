"""The languages of the wires: bytes in, bytes out, without clock, chance or I/O."""
