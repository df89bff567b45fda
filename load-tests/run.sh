#!/usr/bin/env bash
# The load tests: turns at a steady rate, turns as fast as they go, idle sockets, and NPCs who talk with
# each other while players cut in.
#   load-tests/run.sh [steady|peak|idle|conversations|all]
# RATE, SESSIONS, DURATION (seconds), SOCKETS, CONVERSATIONS and EVERY change the load; COLLOQUY_BIN names a binary that is
# built already.
source "$(dirname "$0")/lib.sh"

what="${1:-all}"
bin="$(binary)"
duration="${DURATION:-30}"
failures=0

# Reads a k6 summary: metric, statistic.
stat() { # file metric statistic
  python3 - "$@" <<'PY'
import json, sys
file, metric, name = sys.argv[1:]
values = json.load(open(file))["metrics"].get(metric, {})
value = values.get(name)
print("-" if value is None else f"{value:.2f}")
PY
}

# The server's own added latency, from its histogram: p50 and p99 in ms (interpolated), and the count.
added() {
  curl -fsS "$base/metrics" | python3 -c '
import re, sys
buckets = []
for line in sys.stdin:
    found = re.match(r"colloquy_turn_added_seconds_bucket\{le=\"([^\"]+)\"\} (\S+)", line)
    if found: buckets.append((float(found[1].replace("+Inf", "inf")), float(found[2])))
total = buckets[-1][1] if buckets else 0
def quantile(q):
    low_bound, low_count = 0.0, 0.0
    for bound, count in buckets:
        if count >= q * total and count > low_count:
            if bound == float("inf"): return low_bound
            return low_bound + (bound - low_bound) * (q * total - low_count) / (count - low_count)
        low_bound, low_count = bound, count
    return 0.0
if total: print(f"{quantile(.5) * 1000:.2f} {quantile(.99) * 1000:.2f} {total:.0f}")
else: print("- - 0")
'
}

dialogue() { # name rate sessions
  local name="$1" rate="$2" sessions="$3" out="$work/$1.json" code=0 cpu
  start_mock
  export COLLOQUY__LLM__BASE_URL="$mock_url" COLLOQUY__LLM__MODEL=mock
  start_server
  cpu="$(cpu_seconds "$server_pid")"
  BASE="$base" SECRET="$secret" RATE="$rate" SESSIONS="$sessions" DURATION="$duration" \
    timeout "$((duration + 120))" k6 run --quiet --summary-export "$out" "$here/ws-dialogue.js" >"$work/$name.txt" 2>&1 || code=$?
  cpu="$(echo "$(cpu_seconds "$server_pid") $cpu" | awk '{print $1 - $2}')"
  local turns p50 p99 measured
  read -r p50 p99 measured < <(added)
  turns="$(stat "$out" turns count)"
  echo
  echo "$name: $sessions sessions, $([ "$rate" = 0 ] && echo 'as fast as replies come' || echo "$rate turns/s asked"), ${duration} s"
  echo "  turns                $turns  ($(awk -v n="$turns" -v s="$duration" 'BEGIN {printf "%.0f", n / s}')/s, failed $(stat "$out" turns_failed value))"
  echo "  say to reply.done    p50 $(stat "$out" turn_reply_ms med) ms, p95 $(stat "$out" turn_reply_ms 'p(95)') ms, p99 $(stat "$out" turn_reply_ms 'p(99)') ms (client; model included)"
  echo "  say to committed     p50 $(stat "$out" turn_committed_ms med) ms, p99 $(stat "$out" turn_committed_ms 'p(99)') ms"
  echo "  added by the server  p50 $p50 ms, p99 $p99 ms over $measured turns (at most, at a steady rate: 3 and 20)"
  echo "  server CPU           $(awk -v c="$cpu" -v n="$turns" 'BEGIN {printf "%.2f", n ? c * 1000 / n : 0}') ms a turn, resident $(($(resident_kib "$server_pid") / 1024)) MiB"
  [ "$code" = 0 ] || { echo "  k6 ended with $code:"; grep -E "level=(error|warning)" "$work/$name.txt" | sort | uniq -c | head -n 10; }
  if [ "$rate" != 0 ] && awk -v a="$p50" -v b="$p99" 'BEGIN {exit !(a == "-" || a > 3 || b > 20)}'; then
    echo "  the server adds too much"
    failures=$((failures + 1))
  fi
  [ "$code" = 0 ] || failures=$((failures + 1))
  stop_all
}

stop_all() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pids=()
  rm -rf "$work/data"
}

idle() {
  local sockets="${SOCKETS:-5000}" before held hold=20
  unset COLLOQUY__LLM__BASE_URL COLLOQUY__LLM__MODEL
  ulimit -n "$((sockets * 2 + 1000))" 2>/dev/null || true
  start_server
  before="$(resident_kib "$server_pid")"
  BASE="$base" SECRET="$secret" SOCKETS="$sockets" HOLD="$hold" \
    timeout 180 k6 run --quiet "$here/idle-sockets.js" >"$work/idle.txt" 2>&1 &
  local k6=$! peak=0 open=0 now
  pids+=("$k6")
  while kill -0 "$k6" 2>/dev/null; do
    now="$(curl -fsS "$base/metrics" | awk '/^colloquy_sockets_open / {print int($2)}')"
    if [ "${now:-0}" -ge "$open" ]; then open="${now:-0}"; held="$(resident_kib "$server_pid")"; fi
    sleep 0.5
  done
  wait "$k6" || { tail -n 15 "$work/idle.txt"; return 1; }
  echo
  echo "idle: $open of $sockets sockets open at once"
  echo "  resident             $((before / 1024)) MiB empty, $((held / 1024)) MiB with them: $(awk -v d="$((held - before))" -v n="$open" 'BEGIN {printf "%.1f", n ? d / n : 0}') KiB each"
  stop_all
}

conversations() {
  local count="${CONVERSATIONS:-200}" every="${EVERY:-6}" out="$work/conversations.json" code=0 cpu lines
  start_mock --latency-ms 50 --tokens-per-s 50
  export COLLOQUY__LLM__BASE_URL="$mock_url" COLLOQUY__LLM__MODEL=mock
  # A line about every second of each: more than anybody reads, so that there is something to take back.
  export COLLOQUY__CONVERSATION__PAUSE_MS="${PAUSE_MS:-600}" COLLOQUY__CONVERSATION__READING_MS_PER_CHAR=0
  start_server
  cpu="$(cpu_seconds "$server_pid")"
  BASE="$base" SECRET="$secret" CONVERSATIONS="$count" EVERY="$every" DURATION="$duration" \
    timeout "$((duration + 120))" k6 run --quiet --summary-export "$out" "$here/npc-conversations.js" >"$work/conversations.txt" 2>&1 || code=$?
  cpu="$(echo "$(cpu_seconds "$server_pid") $cpu" | awk '{print $1 - $2}')"
  lines="$(curl -fsS "$base/metrics" | awk '/^colloquy_turn_added_seconds_count/ {print int($2)}')"
  echo
  echo "conversations: $count that go on by themselves, each cut every ${every} s or so, ${duration} s"
  echo "  lines said           $lines ($(awk -v n="$lines" -v s="$duration" 'BEGIN {printf "%.0f", n / s}')/s), interrupts $(stat "$out" interrupts count), calls failed $(stat "$out" calls_failed value)"
  echo "  interrupt to ack     p50 $(stat "$out" interrupt_ack_ms med) ms, p95 $(stat "$out" interrupt_ack_ms 'p(95)') ms, p99 $(stat "$out" interrupt_ack_ms 'p(99)') ms, most $(stat "$out" interrupt_ack_ms max) ms (at most: p99 50)"
  echo "    of the line said   p50 $(stat "$out" interrupt_ack_running_ms med) ms, p99 $(stat "$out" interrupt_ack_running_ms 'p(99)') ms"
  echo "    of earlier lines   p50 $(stat "$out" interrupt_ack_rewound_ms med) ms, p99 $(stat "$out" interrupt_ack_rewound_ms 'p(99)') ms; lines taken back p50 $(stat "$out" lines_taken_back med), most $(stat "$out" lines_taken_back max)"
  echo "  server CPU           $(awk -v c="$cpu" -v s="$duration" 'BEGIN {printf "%.0f", c * 100 / s}') % of a core, resident $(($(resident_kib "$server_pid") / 1024)) MiB"
  [ "$code" = 0 ] || { echo "  k6 ended with $code:"; grep -E "level=(error|warning)" "$work/conversations.txt" | sort | uniq -c | head -n 10; }
  [ "$code" = 0 ] || failures=$((failures + 1))
  stop_all
}

machine
case "$what" in
  steady) dialogue steady "${RATE:-200}" "${SESSIONS:-100}" ;;
  peak) dialogue peak 0 "${SESSIONS:-32}" ;;
  idle) idle ;;
  conversations) conversations ;;
  all)
    dialogue steady "${RATE:-200}" "${SESSIONS:-100}"
    dialogue peak 0 "${SESSIONS:-32}"
    idle
    conversations
    ;;
  *) echo "load-tests/run.sh [steady|peak|idle|conversations|all]" >&2; exit 2 ;;
esac
[ "$failures" = 0 ]
