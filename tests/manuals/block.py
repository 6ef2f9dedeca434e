# block.py - runs a block of Python from a manual: block.py FILE
#
# A comment after an expression is its value, if the comment begins like a value. The test compares
# it with repr() of the result, with its text, and with the type of a loam.Array. The names loam, np
# and numba, which earlier blocks of a manual import, are defined.
import ast
import re
import sys

import numpy as np

import loam

source = open(sys.argv[1]).read()
lines = source.split("\n")
names = {"loam": loam, "np": np, "__name__": "block"}
if "numba" in source:
    import numba

    names["numba"] = numba
for node in ast.parse(source).body:
    comment = re.search(r"#\s*([\d\[{'\"].*|True|False|None)$", lines[node.end_lineno - 1])
    part = ast.unparse(node)
    if not isinstance(node, ast.Expr):
        exec(compile(part, sys.argv[1], "exec"), names)
        continue
    value = eval(part, names)
    texts = [repr(value), str(value), str(getattr(value, "type", ""))]
    if comment and comment.group(1).strip() not in texts:
        sys.exit(f"{part}\nis {texts[0]}, and the manual shows {comment.group(1)}")
