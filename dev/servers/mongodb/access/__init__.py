"""Who a connection is: authentication, users and roles."""
