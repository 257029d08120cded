"""The measured programs: each is run as a process of its own."""
