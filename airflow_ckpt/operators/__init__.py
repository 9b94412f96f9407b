"""The operators: thin, arguments in, core call, result out."""
