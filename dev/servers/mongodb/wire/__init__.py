"""The wire protocol, and connections from member to member."""
