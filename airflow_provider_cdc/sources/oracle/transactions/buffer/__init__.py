"""The buffer of open transactions: rows in memory and on disk until commit or rollback."""
