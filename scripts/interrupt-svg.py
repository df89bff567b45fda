#!/usr/bin/env python3
"""Draws docs/interrupt.svg, the picture of an interrupt in the README.

Usage: scripts/interrupt-svg.py [FILE]
Python's standard library is enough. The output is the same on each run.
"""

import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 920, 584
LANES = {"Mira": 110, "Tom": 330, "Player": 550}
LANE_TOP, LANE_BOTTOM = 70, 566
MEMORY_X, MEMORY_WIDTH = 656, 244

STYLE = """
  svg { color-scheme: light dark; }
  text { font: 15px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2328; }
  .page { fill: #ffffff; stroke: #d0d7de; }
  .name { font-weight: 600; text-anchor: middle; }
  .title { font-weight: 600; }
  .lane { stroke: #8c959f; stroke-dasharray: 3 5; }
  .stands { fill: #ddf4e4; stroke: #1a7f37; }
  .unsaid { fill: #f6f8fa; stroke: #8c959f; stroke-dasharray: 5 4; }
  .player { fill: #ddeeff; stroke: #0969da; }
  .gone { fill: #656d76; text-decoration: line-through; }
  .note { font-size: 13px; fill: #57606a; }
  .cut { stroke: #cf222e; stroke-width: 2.5; }
  .cut-text { fill: #cf222e; font-weight: 600; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .page { fill: #0d1117; stroke: #30363d; }
    .lane { stroke: #6e7681; }
    .stands { fill: #12331d; stroke: #3fb950; }
    .unsaid { fill: #161b22; stroke: #6e7681; }
    .player { fill: #0c2d50; stroke: #58a6ff; }
    .gone { fill: #8b949e; }
    .note { fill: #9da7b1; }
    .cut { stroke: #ff7b72; }
    .cut-text { fill: #ff7b72; }
  }
"""

TITLE = "A player interrupts two NPCs"
DESCRIPTION = (
    "Mira asks Tom about the silver key. Tom says: I hid it under the old mill. Mira answers. The player heard Tom only up to the "
    "words: I hid it. The player cuts in there. The rest of Tom's line and Mira's answer are taken back, with the fact that they taught. "
    "Mira's question and Tom's words up to the cut stand."
)


def text(x, y, content, style=""):
    return f'  <text x="{x}" y="{y}" class="{style}">{escape(content)}</text>'


def box(x, y, width, style, height=38):
    return f'  <rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" class="{style}"/>'


def line(x1, y1, x2, y2, style):
    return f'  <line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{style}"/>'


def lanes():
    """The three who talk."""
    for name, x in LANES.items():
        yield line(x, LANE_TOP, x, LANE_BOTTOM, "lane")
        yield text(x, 58, name, "name")


def before():
    """What the server has already said: turn 2 in full, and turn 3."""
    yield text(24, 28, "The server is ahead: turn 3 is ready while the player still hears turn 2.", "note")
    yield box(40, 92, 310, "stands")
    yield text(54, 116, "1  Have you heard of the silver key?")
    yield box(226, 148, 98, "stands")
    yield text(240, 172, "2  I hid it")
    yield box(336, 148, 172, "unsaid")
    yield text(350, 172, "under the old mill.", "gone")
    yield box(40, 204, 250, "unsaid")
    yield text(54, 228, "3  Then I will go and look.", "gone")


def cut():
    """The player's interrupt, at a word of turn 2."""
    yield line(330, 138, 330, 291, "cut")
    yield line(330, 291, 470, 291, "cut")
    yield box(470, 272, 160, "player")
    yield text(484, 296, "Wait! Hid what?")
    yield text(40, 286, "interrupt of turn 2,", "cut-text")
    yield text(40, 306, "8 characters were heard", "cut-text")


def after():
    """The dialogue as it goes on."""
    yield text(24, 352, "After the interrupt, the dialogue goes on from the cut.", "note")
    yield box(40, 368, 310, "stands")
    yield text(54, 392, "1  Have you heard of the silver key?")
    yield box(226, 418, 112, "stands")
    yield text(240, 442, "2  I hid it\u2014")
    yield box(470, 468, 160, "player")
    yield text(484, 492, "Wait! Hid what?")
    yield box(226, 518, 204, "stands")
    yield text(240, 542, "A key. I forget where.")


def memory():
    """What is taken back, and what stands."""
    inner = MEMORY_X + 14
    yield box(MEMORY_X, 92, MEMORY_WIDTH, "unsaid", 150)
    yield text(inner, 118, "Taken back", "title")
    gone = ["the end of turn 2, and turn 3", "“The key is under the mill.”", "this fact in the search index", "a summary that tells of it"]
    for at, entry in enumerate(gone):
        yield text(inner, 146 + 25 * at, entry, "gone")
    yield box(MEMORY_X, 368, MEMORY_WIDTH, "stands", 124)
    yield text(inner, 394, "Stands", "title")
    stands = ["turn 1, and turn 2 to the cut", "“Tom hid the silver key.”", "older facts, valid again"]
    for at, entry in enumerate(stands):
        yield text(inner, 422 + 25 * at, entry)


def picture():
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title description">',
            f'  <title id="title">{escape(TITLE)}</title>',
            f'  <desc id="description">{escape(DESCRIPTION)}</desc>',
            f"  <style>{STYLE}  </style>",
            box(1, 1, WIDTH - 2, "page", HEIGHT - 2),
            *lanes(),
            *before(),
            *cut(),
            *after(),
            *memory(),
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    default = pathlib.Path(__file__).resolve().parent.parent / "docs" / "interrupt.svg"
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    target.write_text(picture(), encoding="utf-8")
