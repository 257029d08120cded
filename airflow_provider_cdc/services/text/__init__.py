"""Status and signals as text for logs, pages and commands."""
