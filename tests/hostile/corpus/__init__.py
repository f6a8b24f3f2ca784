"""Raw HTTP/1.1 and HTTP/2 that servers must refuse, bound or accept, in files: see README.md."""
