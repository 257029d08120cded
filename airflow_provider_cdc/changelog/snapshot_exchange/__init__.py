"""Messages between a capture and the readers of its snapshot, as files beside the change log: all of them reach its storage, and no other place."""
