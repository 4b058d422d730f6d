#!/usr/bin/python3
"""Wraps the paragraphs and lists of Markdown files at 120 columns. Tables, code, headings and HTML stay as they are.
Usage: scripts/wrap_markdown.py FILE...   (rewrites the files; prints those that changed)
       scripts/wrap_markdown.py --check FILE...   (prints lines that are too long; exit code 1 if there is one)"""

import pathlib
import re
import sys

COLUMNS = 120
FENCE = re.compile(r"\s*(```|~~~)")
ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])(\s+)")
LEFT_ALONE = re.compile(r"\s*(\||#{1,6} |<|!\[|\[[^\]]+\]:|---\s*$|>)")
# A word that would begin something else than text if a line began with it.
MARKS = re.compile(r"([-*+>|]|#{1,6}|\d+[.)])$|[|>]|```|~~~|---")


def words_of(text):
    """The words. One that may not begin a line stays with the word before it. A code span or a link text with spaces
    may be broken between its words, as a line end is a space."""
    words = []
    for word in text.split():
        if words and MARKS.match(word):
            words[-1] += " " + word
        else:
            words.append(word)
    return words


def filled(words, first, rest):
    """Lines of `words`, the first after the text `first`, further ones after `rest`."""
    lines, line = [], first
    width = len(first)
    empty = True
    for index, word in enumerate(words):
        if not empty and width + 1 + len(word) > COLUMNS:
            lines.append(line)
            line, width, empty = rest + word, len(rest) + len(word), False
            continue
        line += word if empty else " " + word
        width = len(line)
        empty = False
    lines.append(line)
    return lines


def wrapped(text):
    """`text` with its paragraphs wrapped."""
    out, paragraph, first, rest, fence = [], [], "", "", None

    def flush():
        nonlocal paragraph, first, rest
        if paragraph:
            out.extend(filled(words_of(" ".join(paragraph)), first, rest))
        paragraph, first, rest = [], "", ""

    lines = text.split("\n")
    in_item = False
    in_comment = False
    for number, line in enumerate(lines):
        mark = FENCE.match(line)
        if fence:
            out.append(line)
            if mark and mark.group(1) == fence:
                fence = None
            continue
        if in_comment:
            out.append(line)
            in_comment = "-->" not in line
            continue
        if mark:
            flush()
            fence = mark.group(1)
            out.append(line)
            continue
        if not line.strip():
            flush()
            out.append(line)
            # The item goes on when the next line is indented.
            following = next((later for later in lines[number + 1:] if later.strip()), "")
            in_item = in_item and following.startswith(" ")
            continue
        item = ITEM.match(line)
        indent = len(line) - len(line.lstrip(" "))
        if item:
            flush()
            in_item = True
            first = line[:item.end()]
            rest = " " * item.end()
            paragraph = [line[item.end():]]
            continue
        if LEFT_ALONE.match(line) or line.endswith("  ") or (not paragraph and not in_item and indent >= 4):
            flush()
            out.append(line)
            in_comment = line.lstrip().startswith("<!--") and "-->" not in line
            continue
        if not paragraph:
            first = rest = " " * indent
        paragraph.append(line.strip())
    flush()
    return "\n".join(out)


def too_long(text):
    """Numbers and lengths of lines that are longer than 120 columns and could be shorter."""
    fence = None
    for number, line in enumerate(text.split("\n"), 1):
        mark = FENCE.match(line)
        if mark:
            fence = None if fence else mark.group(1)
        elif not fence and len(line) > COLUMNS and not LEFT_ALONE.match(line) and len(line.split()) > 1:
            # One long word, such as an address, cannot be broken.
            if max(len(word) for word in line.split()) < COLUMNS - 20:
                yield number, len(line)


def main():
    check = "--check" in sys.argv
    failed = False
    for name in sys.argv[1:]:
        if name == "--check":
            continue
        path = pathlib.Path(name)
        text = path.read_text(encoding="utf-8")
        if check:
            for number, columns in too_long(text):
                print(f"{name}:{number}: {columns} columns, expected at most {COLUMNS}")
                failed = True
        elif wrapped(text) != text:
            path.write_text(wrapped(text), encoding="utf-8")
            print(name)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
