"""Composites in operators that have gradient rules, in forms that cut well."""
