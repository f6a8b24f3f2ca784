"""One file per framework. Each is an extra: importing this package imports none of them."""
