"""The loss: what an output means, at which inputs it is taken, what is summed; methods by value, name and text."""
