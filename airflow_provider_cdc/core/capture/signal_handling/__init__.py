"""Handling of signals during a run: the inbox, permissions, and one action for each type."""
