"""Finished runs at work: predictions for new examples, and files that other programs run."""
