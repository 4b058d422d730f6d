#!/usr/bin/python3
"""Makes a text that every Debian system has, the licenses of package base-files, into word-level data of a language
model.

    scripts/text_data.py [DIR] [--steps 20] [--vocabulary 1000]      default: data/licenses

Writes DIR/{train,test}/{token,label}.npy, i32 [samples, steps], and DIR/vocabulary.txt. A sample is a stretch of the
text, its labels the words that follow each of its tokens; stretches do not overlap, and every tenth is for testing.
Words are lower-case runs of letters and digits, and single punctuation marks. Token 0 stands for all words but the most
frequent ones.
"""

import argparse
import collections
import os
import pathlib
import re
import sys

import numpy

from fashion_mnist import write_npy

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
SOURCE = pathlib.Path("/usr/share/common-licenses")
UNKNOWN = "<unknown>"


def read_words():
    """Words of all files in alphabetical order; links name files that are there under their full name."""
    words = []
    for path in sorted(SOURCE.iterdir()):
        if path.is_file() and not path.is_symlink():
            words += re.findall(r"[^\W_]+|[^\w\s]", path.read_text(encoding="utf-8", errors="replace").lower())
    return words


def main():
    parser = argparse.ArgumentParser(description="Makes the licenses in /usr/share/common-licenses into data of a "
                                     "language model.")
    parser.add_argument("directory", nargs="?", type=pathlib.Path, default=REPOSITORY / "data" / "licenses",
                        metavar="DIR")
    parser.add_argument("--steps", type=int, default=20, help="tokens of a sample; default: 20")
    parser.add_argument("--vocabulary", type=int, default=1000,
                        help="different tokens, the one for unknown words included; default: 1000")
    arguments = parser.parse_args()
    steps, directory = arguments.steps, arguments.directory
    if steps < 1 or arguments.vocabulary < 2:
        parser.error("expected --steps of at least 1 and --vocabulary of at least 2")
    if not SOURCE.is_dir():
        sys.exit(f"{SOURCE} is missing; it belongs to Debian's package base-files")
    words = read_words()
    counts = collections.Counter(words)
    # Equally frequent words in alphabetical order, so that the same text always gives the same tokens.
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:arguments.vocabulary - 1]
    number = {word: index for index, word in enumerate([UNKNOWN, *frequent])}
    stream = numpy.array([number.get(word, 0) for word in words], numpy.int32)
    samples = (len(stream) - 1) // steps
    if samples < 10:
        sys.exit(f"the text has {len(words)} words, too few for samples of {steps}")
    token, label = (stream[shift:shift + samples * steps].reshape(samples, steps) for shift in (0, 1))
    testing = numpy.arange(samples) % 10 == 9
    try:
        for folder, chosen in (("train", ~testing), ("test", testing)):
            write_npy(directory / folder / "token.npy", token[chosen])
            write_npy(directory / folder / "label.npy", label[chosen])
        temporary = directory / f"vocabulary.txt.{os.getpid()}.tmp"
        temporary.write_text("\n".join(number) + "\n", encoding="utf-8")
        os.replace(temporary, directory / "vocabulary.txt")
    except OSError as error:
        sys.exit(f"cannot write to {directory}: {error}")
    print(f"{directory}: {len(words)} words, {len(counts)} different, {100 * float(numpy.mean(stream == 0)):.1f} % "
          f"unknown among {len(number)}; "
          f"samples of {steps} words: {int((~testing).sum())} for training, {int(testing.sum())} for testing")


if __name__ == "__main__":
    main()
