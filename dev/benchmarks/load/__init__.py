"""The work that is measured: tables, changes, events and histories."""
