"""What commands print: facts and tables for people, in words, on a terminal or into a file."""
