"""Readers: from files to arrays. They know nothing of methods."""
