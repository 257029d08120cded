"""Python code and work that executors get from the driver."""
