"""`dpp2 reproduce`."""
