"""Input and output, as thin as it can be: endpoints, links, processes, the loop's driver."""
