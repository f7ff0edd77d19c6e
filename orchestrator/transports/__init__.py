"""How the rounds of a run are carried out. A transport is a module here, named in `dpp2.experiment.TRANSPORTS`."""
