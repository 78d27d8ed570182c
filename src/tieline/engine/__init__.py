"""Where machines meet: decides everything, does nothing."""
