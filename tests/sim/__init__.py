"""Many roots in one process, with seeded clocks, disks and network, and a checker beside them."""
