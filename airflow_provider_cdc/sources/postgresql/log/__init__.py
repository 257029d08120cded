"""From the stream of a replication slot to log items."""
