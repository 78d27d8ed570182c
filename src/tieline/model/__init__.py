"""What things are: frozen values, without clock, disk, network or chance."""
