"""How good a model is beyond its accuracy: calibration, attacks, corruptions, data from elsewhere."""
