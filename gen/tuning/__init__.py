"""Selection tables, as a build reads them: what `wootz tune` measured, joined into the index."""
