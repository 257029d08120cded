"""The Spark session of a job, its log lines, and reads that a session repeats."""
