"""Images that a server keeps from its traffic, to be labelled later."""
