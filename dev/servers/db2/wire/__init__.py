"""The shim between the driver and the engine on the wire."""
