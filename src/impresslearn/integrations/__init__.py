"""Where the library meets other frameworks; each module needs the framework of its name."""
