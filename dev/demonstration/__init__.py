"""``dev/demo``: a live MariaDB kept equal in Delta tables, shown from beginning to end."""
