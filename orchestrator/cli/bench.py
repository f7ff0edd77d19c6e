"""`dpp2 bench`."""
