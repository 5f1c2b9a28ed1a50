"""Thousands of small networks in one tensor, trained together."""
