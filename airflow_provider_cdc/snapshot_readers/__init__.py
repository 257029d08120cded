"""The processes that read the tables of a snapshot beside the capture: executors of a Spark job."""
