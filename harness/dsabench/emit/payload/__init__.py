"""Files that are copied into other packages as they are. They import nothing of dsabench."""
