"""The measured programs: each is run as a separate process."""
