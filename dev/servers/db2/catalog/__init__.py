"""The catalogue SYSCAT, and the privileges in it."""
