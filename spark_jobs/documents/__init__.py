"""Documents as Spark's ``VARIANT``: the texts of the change log as binary values with types, and back as texts."""
