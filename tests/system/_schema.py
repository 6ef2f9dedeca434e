"""Validates answers of the command in JSON: _schema.py FOLDER VERBS ANSWERS.

FOLDER contains the schemas. VERBS lists the commands that have --json. ANSWERS has a line for each
answer: its command, the form that it must have (a name in the schema's $defs) and its text, with
tabs between them. The schema must refuse every possible broken copy of each answer.
"""

import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema

Validator = jsonschema.Draft202012Validator

# The optional members of each form.
OPTIONAL = {
    "error": {"line", "source", "led", "suggestion"},
    "condition": {"line"},
    "strategy": {"handler", "dir", "align", "numa", "huge", "zero", "prefault", "lock", "guard",
                 "mapped", "portable", "write_combined", "id", "pool", "prefer", "limit", "soft",
                 "shared"},
    "limit": {"shared", "shared_used_bytes"},
    "check class": {"file", "func", "module"},
    "explain line": {"tag", "size"},
    "test test": {"got", "line"},
    "test invariant": {"what", "line"},
    "status answer": {"state", "ended_at", "announced", "uid", "since_ms", "updated_at", "limits",
                      "limits_left_out", "strategies", "strategies_left_out", "classes_left_out",
                      "tags", "tags_left_out", "folder", "board", "published", "latest", "before",
                      "pressure", "refused_hash", "command", "rank", "job"},
    "top total": {"asleep_bytes", "bytes_per_s", "blocks_per_s"},
    "top row": {"live_blocks", "grown_bytes", "asleep_bytes", "bytes_per_s", "blocks_per_s",
                "limit", "limit_used", "fallbacks", "failed", "shortfall_bytes", "ended", "node",
                "pid", "state", "hash", "error", "command", "rank", "job"},
    "owner address": {"memory", "tag", "module", "func", "file", "line", "strategy", "kind", "size",
                      "start", "offset", "thread", "mapping", "node", "huge"},
    "owner address.mapping": {"file_offset"},
    "ps answer": {"other_boards"},
    "ps program": {"board", "published", "latest", "before", "pressure", "refused_hash", "command",
                   "rank", "job"},
    "ps strategy_use": {"live_bytes"},
    "status strategy_use": {"live_bytes"},
    "stats strategy_use": {"live_bytes"},
    "stats last_words": {"board", "published", "latest", "before", "pressure", "refused_hash"},
    "wait answer": {"policy", "error", "other_boards"},
    "wait process": {"state", "error"},
    "reload answer": {"waits", "overtaken"},
    "diff answer": {"apply", "impact"},
    "diff answer.kinds": {"denied", "fallback", "limits", "options", "moved", "granted", "renamed",
                          "apply", "undecided"},
    "diff region": {"witness", "impact"},
    "diff witness": {"file", "func", "module", "line", "node", "device", "live", "pressure",
                     "node_free", "device_free", "tag_hex", "file_hex", "func_hex", "module_hex"},
    "diff change": {"old", "new", "options"},
    "diff option": {"old", "new"},
    "pages answer": {"huge_by_mapping", "inexact"},
    "pages group": {"strategy", "kind", "asks_huge", "node"},
    "pages cell": {"blocks", "live", "absent", "cached", "resident", "swapped", "huge", "returned"},
    "stats answer": {"resident_bytes", "resident_own_bytes", "resident_file_bytes",
                     "resident_stack_bytes", "resident_code_bytes", "inexact",
                     "devices"},
    "stats row": {"limit", "limit_used", "limit_peak", "limit_shared", "limit_own", "asleep_bytes"},
    "stats class": {"asleep_bytes"},
    "stats got": {"limit", "limit_used"},
    "doctor answer.pressure": {"stalled", "limit", "left"},
    "doctor answer": {"kernel", "architecture", "group", "memlock", "address_space", "overcommit",
                      "max_map_count"},
    "doctor answer.placing": {"mbind", "move_pages", "prefault", "huge", "give_back", "lock",
                              "has_memory"},
    "doctor answer.hugepages": {"2MiB", "1GiB"},
    "doctor answer.file": {"type", "free", "reason"},
    "doctor node": {"huge_free", "giant_free"},
    "doctor pool": {"total", "free", "reserved", "surplus"},
    "doctor cuda": {"reason", "library", "driver", "toolkit"},
    "doctor device": {"name", "total", "node", "ranges", "pools", "managed", "free", "reason"},
}

# Forms of failure that need a machine without memory. They equal the forms of the other commands.
# The answer of `loam sleep` needs a device: system.sleep validates it.
UNSEEN = {(verb, "failure") for verb in ("check", "plan", "test", "ps", "doctor", "wait")} | {
    ("sleep", "answer")}

faults: list[str] = []


def complain(text: str) -> None:
    faults.append(text)
    print(text)


def forms(schema: dict[str, Any]) -> set[str]:
    """Returns the names of the forms that an answer can have."""
    return {one["$ref"].rpartition("/")[2] for one in schema["oneOf"]}


def objects(schema: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields all objects with members that a part of a schema describes, each with its name."""
    if isinstance(schema, list):
        for one in schema:
            yield from objects(one, where)
    if not isinstance(schema, dict):
        return
    if "properties" in schema:
        yield where, schema
        for name, one in schema["properties"].items():
            yield from objects(one, f"{where}.{name}")
    for key in ("items", "anyOf"):
        yield from objects(schema.get(key), where)


def check_schema(verb: str, schema: dict[str, Any]) -> None:
    """Checks that a schema is valid and closed, and that OPTIONAL has its optional members."""
    Validator.check_schema(schema)
    for form, definition in schema["$defs"].items():
        for where, one in objects(definition, form):
            if one.get("additionalProperties") is not False:
                complain(f"{verb}: {where} is not closed")
            allowed = OPTIONAL.get(where, set()) | OPTIONAL.get(f"{verb} {where}", set())
            optional = set(one["properties"]) - set(one["required"])
            if optional != allowed:
                complain(f"{verb}: {where}: optional are {sorted(optional)}, not {sorted(allowed)}")
            for name, member in one["properties"].items():
                if not {"description", "$ref", "const"} & set(member):
                    complain(f"{verb}: {where}.{name} is not explained")
    for form in forms(schema):
        missing = {"verb", "version", "ok"} - set(schema["$defs"][form]["required"])
        if missing:
            complain(f"{verb}: {form} lacks {sorted(missing)}")


def check_shared(schemas: dict[str, dict[str, Any]]) -> None:
    """Checks that a name which several schemas define has equal definitions in all of them."""
    first: dict[str, Any] = {}
    for verb, schema in schemas.items():
        for name in ("error", "condition", "strategy", "failure", "refused", "limit",
                     "strategy_use", "tag_use"):
            found = json.dumps(schema["$defs"].get(name)).replace(f'"{verb}"', '"VERB"')
            if (verb, name) == ("diff", "refused"):  # the refusal of diff names two policies
                continue
            if found != "null" and first.setdefault(name, found) != found:
                complain(f"{verb}: {name} differs from that of another command")


def shape(value: Any) -> str:
    """Returns the shape of a value: its members and their types, without texts and numbers."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{shape(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(sorted({shape(one) for one in value})) + "]"
    return type(value).__name__


def broken(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields copies of a value, each with one member that is unknown, missing or of another type.

    Each item of a list is broken: reduced() has left one item of each shape.
    """
    wrong = {bool: "text", int: "text", float: "text", str: 7.5, list: {}, dict: []}
    if isinstance(value, dict):
        yield "an unknown member", {**value, "unknown": 1}
        for name in value:
            rest = {key: one for key, one in value.items() if key != name}
            yield f"-{name}", rest
            is_option = "option" in value and name in ("old", "new")  # a value of any type
            for other in (None,) if is_option else (wrong[type(value[name])], None):
                yield f"{name} of another type", {**value, name: other}
            for what, one in () if is_option else broken(value[name]):
                yield f"{name}: {what}", {**value, name: one}
    if isinstance(value, list):
        for i, item in enumerate(value):
            for what, one in broken(item):
                yield f"[{i}]: {what}", [*value[:i], one, *value[i + 1 :]]


def inlined(part: Any, definitions: dict[str, Any]) -> Any:
    """Returns a part of a schema with its references replaced: it validates ten times as fast."""
    if isinstance(part, list):
        return [inlined(one, definitions) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return inlined(definitions[part["$ref"].rpartition("/")[2]], definitions)
    return {key: inlined(one, definitions) for key, one in part.items()}


ALL_OPTIONAL = set().union(*OPTIONAL.values())


def reduced(value: Any) -> Any:
    """Returns a value without those list items that have the shape of an earlier item."""
    if isinstance(value, dict):
        return {name: reduced(one) for name, one in value.items()}
    if isinstance(value, list):
        return list({shape(one): reduced(one) for one in reversed(value)}.values())[::-1]
    return value


broken_shapes: set[tuple[str, str, str]] = set()


def check_answer(verb: str, form: str, text: str, schema: dict[str, Any]) -> int:
    """Checks that an answer has its form and no broken copy has it. Returns the number of copies.

    Only the first answer of each shape is broken.
    """
    answer = json.loads(text)
    count = 0
    whole = Validator(schema)
    one = Validator(inlined(schema["$defs"][form], schema["$defs"]))
    if not whole.is_valid(answer) or not one.is_valid(answer):
        error = jsonschema.exceptions.best_match(one.iter_errors(answer))
        where = list(error.absolute_path) if error else "it has two forms"
        complain(f"{verb}: {form}: {where}: {error.message if error else ''}\n  {text}")
        return count
    if (verb, form, shape(answer)) in broken_shapes:
        return count
    broken_shapes.add((verb, form, shape(answer)))
    small = reduced(answer)
    if not one.is_valid(small):
        complain(f"{verb}: {form}: the answer is valid, and not with fewer items in its lists")
    for what, copied in broken(small):
        count += 1
        name = what.rpartition(": ")[2]
        if one.is_valid(copied) and name.lstrip("-") not in ALL_OPTIONAL | {"0"}:
            complain(f"{verb}: {form}: the schema allows {what}")
    return count


def main(folder: str, verbs: str, answers: str) -> int:
    files = pathlib.Path(folder).glob("*.json")
    schemas = {path.stem: json.loads(path.read_text()) for path in files}
    wanted = set(pathlib.Path(verbs).read_text().split())
    if set(schemas) != wanted:
        complain(f"schemas without a command, or commands without: {sorted(set(schemas) ^ wanted)}")
    for verb, schema in schemas.items():
        check_schema(verb, schema)
    check_shared(schemas)
    seen, copies = set(), 0
    for line in pathlib.Path(answers).read_text().splitlines():
        verb, form, text = line.split("\t", 2)
        copies += check_answer(verb, form, text, schemas[verb])
        seen.add((verb, form))
    unseen = {(verb, form) for verb in schemas for form in forms(schemas[verb])} - seen
    if unseen != UNSEEN:
        complain(f"forms that no answer has, or that one has by now: {sorted(unseen ^ UNSEEN)}")
    if not faults:
        print(f"ok: {len(schemas)} schemas, {len(seen)} forms, {copies} broken copies refused")
    return 1 if faults else 0


sys.exit(main(*sys.argv[1:]))
