"""What is measured: our own capture and apply, and Debezium's engine, as processes."""
