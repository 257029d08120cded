"""What waits in the triggerer, for sensors, operators and assets."""
