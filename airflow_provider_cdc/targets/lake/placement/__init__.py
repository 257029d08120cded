"""Which target table the rows of a topic go to, and by which rule."""
