"""Where people already train: one adapter per framework, each an extra, all calling the same core."""
