"""A service over a model's space, and the page that walks through it."""
