"""The loss: what an output means, where it is asked, what is summed; methods as values, by name and as text."""
