"""``dev/bench``: how fast capture, snapshot and apply are, beside Debezium's engine on the same server in the same run."""
