"""The identity of a connection: authentication, users and roles."""
