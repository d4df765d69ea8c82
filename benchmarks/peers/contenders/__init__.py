"""Those who do the same step: look up, backward to the tables, update. One file each."""
