"""The engine: one loop from a config to a trained model."""
