"""Change events as Spark rows: files, images, partial updates, reduction to final rows."""
