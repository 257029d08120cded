"""Tools for developers of this project: set-up, checks, and real database servers to test against."""
