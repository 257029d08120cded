"""The Capture program: registrations of tables, and their change tables."""
