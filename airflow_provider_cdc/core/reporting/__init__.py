"""Reports of a run about itself: metrics, and progress of long work."""
