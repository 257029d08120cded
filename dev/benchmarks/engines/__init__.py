"""The measured engines, as processes: our own capture and apply, and Debezium's engine."""
