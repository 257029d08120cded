"""Files of the change log: batches, storage, the log start, and small files beside them."""
