"""Past one process: a run that several make together, and grids on a cluster."""
