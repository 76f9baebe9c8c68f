"""What is given in the place of modules: packages of ours by public names, and modules that cannot be used."""
