"""The sub-commands, one a module: each parses its line into an action that is done afterwards."""
