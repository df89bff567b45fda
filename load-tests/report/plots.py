"""Two kinds of plots as SVG, without a library: lines over time and stacked bars."""

from html import escape

COLOURS = ["#2f6fb0", "#d1672b", "#3a8f4d", "#9b4fa5", "#a8912c", "#6b6b6b"]
WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 160, 34, 40


def _ticks(most):
    """Round steps from 0 to at least `most`."""
    step = 10 ** max(-3, len(str(int(max(most, 1)))) - 1)
    while most / step < 3:
        step /= 2
    count = int(most / step) + 1
    return [step * i for i in range(count + 1)]


def _frame(title, unit, ticks):
    top = ticks[-1] or 1
    y = lambda value: TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in ticks:
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="#555">{tick:g}</text>')
    parts.append(f'<text x="14" y="{HEIGHT / 2}" transform="rotate(-90 14 {HEIGHT / 2})" text-anchor="middle" fill="#555">{escape(unit)}</text>')
    return parts, y


def _legend(parts, names):
    for i, name in enumerate(names):
        at = TOP + 16 * i
        parts.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{at}" width="10" height="10" fill="{COLOURS[i % len(COLOURS)]}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 30}" y="{at + 9}">{escape(name)}</text>')


def lines(title, unit, series):
    """`series`: name → [(seconds, value)]."""
    series = {name: points for name, points in series.items() if points}
    most = max((value for points in series.values() for _, value in points), default=1)
    until = max((at for points in series.values() for at, _ in points), default=1) or 1
    parts, y = _frame(title, unit, _ticks(most))
    x = lambda at: LEFT + (WIDTH - LEFT - RIGHT) * at / until
    for i, points in enumerate(series.values()):
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="2"/>')
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<text x="{x(until * share):.1f}" y="{HEIGHT - 20}" text-anchor="middle" fill="#555">{until * share:.0f} s</text>')
    _legend(parts, list(series))
    return "\n".join([*parts, "</svg>\n"])


def bars(title, unit, stacks):
    """`stacks`: bar → {part: value}, one upon the other."""
    names = sorted({name for parts in stacks.values() for name in parts})
    most = max((sum(parts.values()) for parts in stacks.values()), default=1)
    parts, y = _frame(title, unit, _ticks(most))
    room = (WIDTH - LEFT - RIGHT) / max(len(stacks), 1)
    for i, (label, values) in enumerate(stacks.items()):
        low = 0.0
        for j, name in enumerate(names):
            value = values.get(name, 0.0)
            parts.append(
                f'<rect x="{LEFT + room * (i + 0.2):.1f}" y="{y(low + value):.1f}" width="{room * 0.6:.1f}" height="{y(low) - y(low + value):.1f}" fill="{COLOURS[j % len(COLOURS)]}"/>'
            )
            low += value
        parts.append(f'<text x="{LEFT + room * (i + 0.5):.1f}" y="{y(low) - 4:.1f}" text-anchor="middle">{low:.2f}</text>')
        parts.append(f'<text x="{LEFT + room * (i + 0.5):.1f}" y="{HEIGHT - 20}" text-anchor="middle" fill="#555">{escape(label)}</text>')
    _legend(parts, names)
    return "\n".join([*parts, "</svg>\n"])
