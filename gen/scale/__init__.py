"""Builds that outgrow a machine: what compiles cost, shards and their merge, what artifacts weigh."""
