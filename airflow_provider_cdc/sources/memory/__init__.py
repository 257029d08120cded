"""A complete source inside the process: the reference for the Source seam, and a database for tests."""
