"""From a config to a record that can be trusted: RunConfig, RunRecord, the folder of runs. No torch needed."""
