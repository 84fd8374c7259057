"""Sources -> artifacts and their index: the graph, its run, the audits."""
