"""Oracle's SQL as far as this server knows it, turned into the SQL of SQLite."""
