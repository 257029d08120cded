"""The processing of commands: the registry of their names, the context of a run, and its waits."""
