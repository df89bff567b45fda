#!/usr/bin/env python3
"""Checks that locals, parameters and fields say what they hold: `scripts/names.py [--list]`.

A participle or a pronoun-like word in place of a noun (`said`, `gone`, `own`, `at`) tells a reader nothing in the middle of a
function. The script counts such names in src/, without tests, and fails if their share is above a limit. `let (a, b) = (x, y)`
counts too: two statements are two lines. `--list` prints every hit.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VAGUE = set(
    """said told gone kept asked sorted around some known meant settled found sought shown read took given held left taken
    stood spoken written moved ended begun seen made done cut heard named wanted own beside here there then others none more
    least most lacks fresh away such what whose whom by at of""".split()
)
# The highest share of each kind, in percent.
LIMITS = {"locals": 1.0, "parameters": 0.5, "fields": 0.5, "tuple lets": 0.2}
NO_NAMES = {"Some", "Ok", "Err", "None", "_"}


def blank(text):
    """Replaces a text by spaces, and keeps its lines."""
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    """Blanks comments, strings and characters, so that offsets stay the same."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\\\'\n])\'', re.DOTALL
    )
    return pattern.sub(lambda found: blank(found.group(0)), text)


def end_of(text, start, opening, closing):
    """Returns the position after the bracket that closes the one before `start`."""
    depth, position = 1, start
    while depth and position < len(text):
        depth += (text[position] == opening) - (text[position] == closing)
        position += 1
    return position


def without_tests(text):
    """Blanks modules of tests."""
    for module in re.finditer(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{", text):
        end = end_of(text, module.end(), "{", "}")
        text = text[: module.start()] + blank(text[module.start() : end]) + text[end:]
    return text


def names_in(text):
    """Yields kind, name and offset of every name."""
    for function in re.finditer(r"\bfn\s+\w+\s*(?:<[^({]*>)?\s*\(", text):
        end = end_of(text, function.end(), "(", ")")
        for name in re.finditer(r"(?:(?<=^)|(?<=[,(]))\s*(?:mut\s+)?(\w+)\s*:(?!:)", text[function.end() : end - 1]):
            yield "parameters", name.group(1), function.end() + name.start(1)
    for structure in re.finditer(r"\bstruct\s+\w+[^{;(]*\{", text):
        end = end_of(text, structure.end(), "{", "}")
        fields = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(\w+)\s*:(?!:)", re.MULTILINE)
        for name in fields.finditer(text, structure.end(), end):
            yield "fields", name.group(1), name.start(1)
    for local in re.finditer(r"\blet\s+(?:mut\s+)?(\w+)\b", text):
        if local.group(1) not in NO_NAMES:
            yield "locals", local.group(1), local.start(1)


def tuple_lets_in(text):
    for tuple_let in re.finditer(r"\blet\s+\((?:mut )?\w+,[^)=]*\)\s*=\s*\(", text):
        yield tuple_let.start()


def main():
    counts = dict.fromkeys(LIMITS, 0)
    hits = {kind: [] for kind in LIMITS}
    for path in sorted((ROOT / "src").rglob("*.rs")):
        inside = path.relative_to(ROOT).as_posix()
        if re.search(r"/tests?(/|\.rs$)|_tests?\.rs$", inside):
            continue
        text = without_tests(without_comments(path.read_text(encoding="utf-8")))

        def place(offset):
            return f"{inside}:{text.count(chr(10), 0, offset) + 1}"

        for kind, name, offset in names_in(text):
            counts[kind] += 1
            if name in VAGUE:
                hits[kind].append(f"{place(offset)}: {name}")
        counts["tuple lets"] += len(re.findall(r"\blet\b", text))
        hits["tuple lets"] += [f"{place(offset)}: let (..) = (..)" for offset in tuple_lets_in(text)]
    is_wrong = False
    for kind, limit in LIMITS.items():
        share = 100 * len(hits[kind]) / counts[kind]
        is_over = share > limit
        is_wrong |= is_over
        print(f"{kind}: {len(hits[kind])} of {counts[kind]} say too little ({share:.2f} %, at most {limit} %)")
        if is_over or "--list" in sys.argv[1:]:
            print("\n".join(f"  {hit}" for hit in hits[kind]))
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
