"""Our layers in other packages, which are imported only when used."""
