"""What a developer of this project runs: set-up, checks, and real database servers to test against."""
