"""A complete source inside the process: the reference implementation of the source interface, and a database for tests."""
