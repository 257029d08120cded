"""One command on its way: by which name it is found, in which context it runs, and what it waits for."""
