"""The command `plan-swarm`: parse, call `planner`, render. No logic of its own."""
