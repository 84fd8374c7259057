"""Manifest x profile x filters -> cells, their names, and what is said about them."""
