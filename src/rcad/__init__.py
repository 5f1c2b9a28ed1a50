"""RCAD and its rivals."""
