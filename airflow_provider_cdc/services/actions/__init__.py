"""Actions on a connector: the plan, the execution, and the record of who asked for them."""
