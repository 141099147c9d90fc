"""As much of JSON Schema (draft 2020-12) as the schemas in docs/ use; any other keyword is an error.

    for problem in problems(value, schema): ...
"""
import re

ANNOTATIONS = {"$schema", "$defs", "title", "description", "examples", "default"}
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}


def is_type(value, name):
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def problems(value, schema, root=None, where="$"):
    root = root or schema
    if schema is False:
        yield f"{where}: is not allowed"
        return
    for keyword, rule in schema.items():
        if keyword in ANNOTATIONS:
            continue
        elif keyword == "$ref":
            target = root
            for part in rule.removeprefix("#/").split("/"):
                target = target[part]
            yield from problems(value, target, root, where)
        elif keyword == "type":
            names = rule if isinstance(rule, list) else [rule]
            if not any(is_type(value, name) for name in names):
                yield f"{where}: {value!r} is no {' or '.join(names)}"
        elif keyword == "const":
            if value != rule or isinstance(value, bool) != isinstance(rule, bool):
                yield f"{where}: {value!r} is not {rule!r}"
        elif keyword == "enum":
            if value not in rule:
                yield f"{where}: {value!r} is none of {rule}"
        elif keyword == "anyOf":
            tries = [list(problems(value, option, root, where)) for option in rule]
            if all(tries):
                yield from min(tries, key=len)  # those of the option that fits best
        elif keyword == "oneOf":
            fits = sum(not list(problems(value, option, root, where)) for option in rule)
            if fits != 1:
                yield f"{where}: fits {fits} of the alternatives"
        elif keyword == "if":
            branch = "else" if list(problems(value, rule, root, where)) else "then"
            yield from problems(value, schema.get(branch, {}), root, where)
        elif keyword in ("then", "else"):
            continue  # read with `if`
        elif keyword == "dependentRequired":
            for key, others in rule.items():
                for other in others if isinstance(value, dict) and key in value else []:
                    if other not in value:
                        yield f"{where}: {key!r} without {other!r}"
        elif keyword == "minimum":
            if isinstance(value, int) and value < rule:
                yield f"{where}: {value} is below {rule}"
        elif keyword == "minLength":
            if isinstance(value, str) and len(value) < rule:
                yield f"{where}: {value!r} is too short"
        elif keyword == "minProperties":
            if isinstance(value, dict) and len(value) < rule:
                yield f"{where}: has {len(value)} keys"
        elif keyword == "minItems":
            if isinstance(value, list) and len(value) < rule:
                yield f"{where}: has {len(value)} items"
        elif keyword == "pattern":
            if isinstance(value, str) and not re.search(rule, value):
                yield f"{where}: {value!r} does not match {rule}"
        elif keyword == "items":
            for i, item in enumerate(value if isinstance(value, list) else []):
                yield from problems(item, rule, root, f"{where}[{i}]")
        elif keyword == "required":
            for key in rule:
                if isinstance(value, dict) and key not in value:
                    yield f"{where}: has no {key!r}"
        elif keyword == "properties":
            for key, sub in rule.items():
                if isinstance(value, dict) and key in value:
                    yield from problems(value[key], sub, root, f"{where}.{key}")
        elif keyword == "additionalProperties":
            for key in value if isinstance(value, dict) else []:
                if key not in schema.get("properties", {}):
                    yield from problems(value[key], rule, root, f"{where}.{key}")
        elif keyword == "propertyNames":
            for key in value if isinstance(value, dict) else []:
                yield from problems(key, rule, root, f"{where} key {key!r}")
        else:
            raise ValueError(f"{where}: the keyword {keyword!r} is not known here")
