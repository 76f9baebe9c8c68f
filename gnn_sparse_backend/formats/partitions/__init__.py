"""How a structure is cut and shared out: groups, parts, pieces and orders of rows, and pairs of relations."""
