#!/usr/bin/env bash
# The load tests, with their own server, mock model and stores.
#   load-tests/run.sh [steady|world|first-word|highest|peak|rest|idle|touched|conversations|barge-in|flood|soak|where|all]…
# STACK=full runs the server on Postgres and Redis (and Qdrant, if QDRANT_URL names one), STACK=embedded (the default)
# on SQLite. RATE, SESSIONS, DURATION (seconds), SOCKETS, DIALOGUES, CONVERSATIONS, BARGING, EVERY, QUOTA, TALK,
# BARGE_S, SOAK and FLOOD_S (seconds) change the load. INTENT is the mock model's answer to the question for the intent of a
# line (`memory` in `world`, where it looks for lore by meaning, otherwise `chat`). COLLOQUY_BIN names an existing binary.
# MOCK has further options of the mock model (`colloquy mock-llm --help`), for `steady`, `world` and `peak`.
# RESULTS names a file for one line of JSON per test.
source "$(dirname "$0")/lib.sh"

bin="$(binary)"
duration="${DURATION:-30}"
failures=0

# Reads a k6 summary: metric, statistic.
stat() { # file metric statistic
  python3 - "$@" <<'PY'
import json, sys
file, metric, name = sys.argv[1:]
try:
    values = json.load(open(file))["metrics"].get(metric, {})
except OSError:
    values = {}
value = values.get(name)
print("-" if value is None else f"{value:.2f}")
PY
}

# Of a histogram of the server: p50, p95 and p99 in ms (interpolated), and the count.
quantiles_of() { # histogram, with the labels before `le`
  curl -fsS "$base/metrics" | python3 -c '
import re, sys
sys.path.insert(0, sys.argv[1])
from reading import quantile
buckets = re.findall(re.escape(sys.argv[2]) + r"le=\"([^\"]+)\"\} (\S+)", sys.stdin.read())
buckets = [(bound, float(count)) for bound, count in buckets]
if buckets and buckets[-1][1]: print(*(f"{quantile(buckets, q) * 1000:.2f}" for q in (.5, .95, .99)), f"{buckets[-1][1]:.0f}")
else: print("- - - 0")
' "$here/report" "$1"
}

# The latency added by the server.
added() {
  quantiles_of 'colloquy_turn_added_seconds_bucket{'
}

# The curation passes of the run.
passes() {
  curl -fsS "$base/metrics" | awk '/^colloquy_job_attempts_total.*kind="curate".*outcome="done"/ {n += $NF} END {print n + 0}'
}

above() { # value limit
  awk -v a="$1" -v b="$2" 'BEGIN {exit !(a == "-" || a + 0 > b + 0)}'
}

complain() { # name
  echo "  k6 ended with $code:"
  grep -E "level=(error|warning)" "$work/$1.txt" | sort | uniq -c | head -n 10 || true
  failures=$((failures + 1))
}

# Waits up to two minutes until no job is pending, and sets $learning to the seconds. The CPU per turn then includes the
# learning, even if jobs lag behind.
finish_jobs() {
  local since="$SECONDS"
  while curl -fsS "$base/metrics" | awk '/^colloquy_jobs_pending/ {n += $NF} END {exit !n}' && [ "$((SECONDS - since))" -lt 120 ]; do
    sleep 0.5
  done
  learning=$((SECONDS - since))
}

# Runs k6 beside the sampler: name, script, and the variables of the script. Sets $out, $code and $k6_cpu (seconds).
# With TEACHES=1, also waits for the turns' jobs. $talk has the samples of the turns alone.
load() {
  local name="$1" script="$2" before after
  talk="$work/$name.talk"
  shift 2
  out="$work/$name.json"
  code=0
  sample "$name"
  before="$(awk -v hz="$(getconf CLK_TCK)" '{print ($16 + $17) / hz}' "/proc/$$/stat")"
  env BASE="$base" SECRET="$secret" DURATION="$duration" "$@" \
    STACK="$stack" timeout "$((duration + 120))" k6 run --quiet --summary-export "$out" "$here/$script" >"$work/$name.txt" 2>&1 || code=$?
  after="$(awk -v hz="$(getconf CLK_TCK)" '{print ($16 + $17) / hz}' "/proc/$$/stat")"
  k6_cpu="$(awk -v a="$before" -v b="$after" 'BEGIN {print b - a}')"
  cp "$samples" "$talk"
  [ -z "${TEACHES:-}" ] || finish_jobs
  end_sample "$name"
}

# Prints the cost of a turn, and sets $costs for `record`.
cpu_of() { # turns
  local per="$(python3 "$here/report/reading.py" "$samples" "$1") k6=$(awk -v c="$k6_cpu" -v n="$1" 'BEGIN {printf "%.3f", n ? c * 1000 / n : 0}')"
  costs=()
  for pair in $per; do costs+=("cpu_$pair"); done
  echo "  CPU ms a turn        ${per//=/ }, server resident $(($(resident_kib "$server_pid") / 1024)) MiB"
}

begin() { # [options of mock-llm]
  start_stores
  start_mock "$@"
  export COLLOQUY__LLM__BASE_URL="$mock_url" COLLOQUY__LLM__MODEL=mock
  start_server
}

stop_all() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pids=()
  mock_pid=
  stop_stores
  rm -rf "$work/data"
}

# What a player may wait at a steady rate, at the client, in ms: p50 and p99. The mock model's own time is a part.
bars() {
  if [ "$stack" = embedded ]; then most_p50=5 most_p99=20; else most_p50=10 most_p99=50; fi
}

dialogue() { # name rate sessions
  local name="$1" rate="$2" sessions="$3" turns p50 p95 p99 measured most_p50 most_p99 intent=chat
  bars
  [ "$name" != world ] || intent=memory
  # shellcheck disable=SC2086
  begin --intent "${INTENT:-$intent}" ${MOCK:-}
  [ "$name" != world ] || python3 "$here/world.py" "$base" "$(token backend)" "$sessions"
  load "$name" ws-dialogue.js RATE="$rate" SESSIONS="$sessions"
  read -r p50 p95 p99 measured < <(added)
  turns="$(stat "$out" turns count)"
  echo
  echo "$name ($stack): $sessions sessions, $([ "$rate" = 0 ] && echo 'as fast as replies come' || echo "$rate turns/s asked"), ${duration} s"
  echo "  turns                $turns  ($(awk -v n="$turns" -v s="$duration" 'BEGIN {printf "%.0f", n / s}')/s, failed $(stat "$out" turns_failed value))"
  echo "  say to reply.done    p50 $(stat "$out" turn_reply_ms med) ms, p95 $(stat "$out" turn_reply_ms 'p(95)') ms, p99 $(stat "$out" turn_reply_ms 'p(99)') ms (client; the mock model's time is a part; p50 and p99 at most, at a steady rate: $most_p50 and $most_p99)"
  echo "  say to committed     p50 $(stat "$out" turn_committed_ms med) ms, p99 $(stat "$out" turn_committed_ms 'p(99)') ms"
  echo "  added by the server  p50 $p50 ms, p95 $p95 ms, p99 $p99 ms over $measured turns (waits for memory and places included)"
  echo "  curation passes      $(passes)"
  cpu_of "$turns"
  record "$name" asked="$rate" sessions="$sessions" seconds="$duration" turns="$turns" failed="$(stat "$out" turns_failed value)" \
    added_p50="$p50" added_p95="$p95" added_p99="$p99" passes="$(passes)" reply_p50="$(stat "$out" turn_reply_ms med)" reply_p99="$(stat "$out" turn_reply_ms 'p(99)')" \
    committed_p50="$(stat "$out" turn_committed_ms med)" committed_p99="$(stat "$out" turn_committed_ms 'p(99)')" \
    resident_mib="$(($(resident_kib "$server_pid") / 1024))" k6="$code" "${costs[@]}"
  [ "$code" = 0 ] || complain "$name"
  # MOCK may have made the model slow.
  if [ "$rate" != 0 ] && [ -z "${MOCK:-}" ] &&
    { above "$(stat "$out" turn_reply_ms med)" "$most_p50" || above "$(stat "$out" turn_reply_ms 'p(99)')" "$most_p99"; }; then
    echo "  players wait too long"
    failures=$((failures + 1))
  fi
}

# Finds the highest steady rate within the bars. Raises the turns per second on one server until a rate fails twice.
highest() {
  local rate="${RATE_FROM:-200}" step="${RATE_STEP:-25}" duration="${STEP:-20}" most_p50 most_p99 best=0 best_p50=- best_p99=- tries=0 p50 p99 turns share
  bars
  begin
  echo
  echo "highest ($stack): from $rate turns/s, $step more every $duration s, while players wait p50 ≤ $most_p50 and p99 ≤ $most_p99 ms for a reply and nothing fails"
  while [ "$tries" -lt 2 ]; do
    load "highest-$rate" ws-dialogue.js RATE="$rate" SESSIONS="${SESSIONS:-100}" BARS=runner
    p50="$(stat "$out" turn_reply_ms med)" p99="$(stat "$out" turn_reply_ms 'p(99)')"
    turns="$(stat "$out" turns count)"
    share="$(awk -v n="$turns" -v s="$duration" -v r="$rate" 'BEGIN {printf "%.3f", n / s / r}')"
    if [ "$code" != 0 ] || above "$p50" "$most_p50" || above "$p99" "$most_p99" || above 0.98 "$share"; then
      tries=$((tries + 1))
      echo "  $rate turns/s          not held: p50 $p50 ms, p99 $p99 ms, $(awk -v n="$share" 'BEGIN {print n * 100}') % of the turns came, failed $(stat "$out" turns_failed value)"
      continue
    fi
    echo "  $rate turns/s          p50 $p50 ms, p99 $p99 ms"
    best="$rate" best_p50="$p50" best_p99="$p99" tries=0
    rate=$((rate + step))
  done
  record highest rate="$best" reply_p50="$best_p50" reply_p99="$best_p99" seconds="$duration" bar_p99="$most_p99"
  if [ "$best" = 0 ]; then
    echo "  not even the lowest rate"
    failures=$((failures + 1))
  fi
  stop_all
}

# How long players wait for the first word of a reply, with a model that takes 300 ms to its first token.
first_word() {
  local turns first_p50 first_p99 latency=300 words=50
  begin --latency-ms "$latency" --tokens-per-s "$words" --intent "${INTENT:-chat}"
  load first-word ws-dialogue.js RATE="${RATE:-50}" SESSIONS="${SESSIONS:-100}"
  turns="$(stat "$out" turns count)"
  first_p50="$(stat "$out" turn_first_delta_ms med)" first_p99="$(stat "$out" turn_first_delta_ms 'p(99)')"
  echo
  echo "first-word ($stack): ${SESSIONS:-100} sessions, ${RATE:-50} turns/s asked, ${duration} s; a model with $latency ms to the first token and $words words/s"
  echo "  turns                $turns, failed $(stat "$out" turns_failed value)"
  echo "  say to first word    p50 $first_p50 ms, p95 $(stat "$out" turn_first_delta_ms 'p(95)') ms, p99 $first_p99 ms (client)"
  record first-word asked="${RATE:-50}" seconds="$duration" turns="$turns" failed="$(stat "$out" turns_failed value)" first_p50="$first_p50" first_p99="$first_p99" k6="$code"
  [ "$code" = 0 ] || complain first-word
  stop_all
}

rest() {
  local turns p50 p95 p99 measured
  begin
  load rest rest-turns.js RATE="${REST_RATE:-100}" SESSIONS=50
  read -r p50 p95 p99 measured < <(added)
  turns="$(stat "$out" turns count)"
  echo
  echo "rest ($stack): ${REST_RATE:-100} turns/s over REST, ${duration} s"
  echo "  turns                $turns, failed $(stat "$out" turns_failed value), dropped by k6 $(stat "$out" dropped_iterations count)"
  echo "  request to answer    p50 $(stat "$out" rest_turn_ms med) ms, p95 $(stat "$out" rest_turn_ms 'p(95)') ms, p99 $(stat "$out" rest_turn_ms 'p(99)') ms (the commit included)"
  echo "  added by the server  p50 $p50 ms, p99 $p99 ms over $measured turns"
  cpu_of "$turns"
  record rest asked="${REST_RATE:-100}" seconds="$duration" turns="$turns" failed="$(stat "$out" turns_failed value)" added_p50="$p50" added_p99="$p99" \
    answer_p50="$(stat "$out" rest_turn_ms med)" answer_p99="$(stat "$out" rest_turn_ms 'p(99)')" k6="$code" "${costs[@]}"
  [ "$code" = 0 ] || complain rest
  stop_all
}

# The second tenant sends ten times its quota every other ten seconds.
flood() {
  # With fewer turns, a p95 says little.
  local duration="${FLOOD_S:-60}" quota="${QUOTA:-50}" before after rise
  QUOTA="$quota" begin
  load flood rest-turns.js RATE="$((quota / 2))" SESSIONS=20 FLOOD="$((10 * quota))"
  before="$(stat "$out" calm_turn_ms 'p(95)')"
  after="$(stat "$out" flooded_turn_ms 'p(95)')"
  rise="$(awk -v a="$before" -v b="$after" 'BEGIN {if (a + 0 > 0 && b + 0 > 0) printf "%.2f", b / a; else print "-"}')"
  echo
  echo "flood ($stack): a tenant with $((quota / 2)) turns/s, another sends $((10 * quota)) requests/s for half of $duration s; each may send $quota/s"
  echo "  the first one's turn p50 $(stat "$out" calm_turn_ms med) → $(stat "$out" flooded_turn_ms med) ms, p95 $before → $after ms: $rise times (below 1.5), failed $(stat "$out" turns_failed value)"
  echo "  the other's requests served $(stat "$out" flood_served count), refused $(stat "$out" flood_refused count), failed $(stat "$out" flood_failed count)"
  record flood quota="$quota" before_p50="$(stat "$out" calm_turn_ms med)" after_p50="$(stat "$out" flooded_turn_ms med)" before_p95="$before" after_p95="$after" \
    rise="$rise" served="$(stat "$out" flood_served count)" refused="$(stat "$out" flood_refused count)" failed="$(stat "$out" turns_failed value)" k6="$code"
  [ "$code" = 0 ] || complain flood
  if above "$rise" 1.49; then
    echo "  the first tenant feels it too much"
    failures=$((failures + 1))
  fi
  stop_all
}

# Every line teaches a fact. Memories grow, and turns must not become slower.
soak() {
  local duration="${SOAK:-120}" turns p50 p95 p99 measured said_p50 said_p99
  # Two facts per turn: the line's fact and one more.
  begin --facts-per-turn 1
  TEACHES=1 load soak ws-dialogue.js RATE="${SOAK_RATE:-50}" SESSIONS=50 GROWING=1
  read -r p50 p95 p99 measured < <(added)
  read -r said_p50 _ said_p99 _ < <(quantiles_of 'colloquy_job_lag_seconds_bucket{kind="extract_facts",')
  turns="$(stat "$out" turns count)"
  echo
  echo "soak ($stack): ${SOAK_RATE:-50} turns/s for $duration s, each of which teaches the same NPC something new"
  echo "  turns                $turns, failed $(stat "$out" turns_failed value)"
  echo "  added by the server  p50 $p50 ms, p99 $p99 ms"
  echo "  said to recallable   p50 $said_p50 ms, p99 $said_p99 ms, from the commit of a turn; the last one $learning s"
  if ! python3 "$here/report/halves.py" "$talk"; then
    echo "  turns get slower as memories grow"
    failures=$((failures + 1))
  fi
  cpu_of "$turns"
  record soak asked="${SOAK_RATE:-50}" seconds="$duration" turns="$turns" failed="$(stat "$out" turns_failed value)" added_p50="$p50" added_p99="$p99" said_p50="$said_p50" said_p99="$said_p99" learning="$learning" k6="$code" "${costs[@]}"
  [ "$code" = 0 ] || complain soak
  stop_all
}

# Where a full-stack turn spends its time: statements and trips, as counted by Postgres and Redis.
where() {
  [ "$stack" = full ] || { echo "where: only with STACK=full" >&2; return 0; }
  PG_STATS=1 begin
  load where ws-dialogue.js RATE="${RATE:-200}" SESSIONS="${SESSIONS:-100}"
  local turns statements trips inside
  turns="$(stat "$out" turns count)"
  echo
  echo "where ($stack): ${RATE:-200} turns/s, ${duration} s"
  psql_admin -d colloquy -F "$(printf '\t')" -c "SELECT calls, round(total_exec_time::numeric, 1), rows, regexp_replace(query, '\s+', ' ', 'g')
    FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid WHERE rolname = 'colloquy' ORDER BY total_exec_time DESC" >"$work/statements.tsv"
  redis-cli -p "$redis_port" info commandstats >"$work/commands.txt"
  curl -fsS "$base/metrics" >"$work/metrics.txt"
  python3 "$here/report/where.py" "$work" "$turns"
  cpu_of "$turns"
  if [ -n "${RESULTS:-}" ]; then
    python3 "$here/report/where.py" "$work" "$turns" --markdown >"$(dirname "$RESULTS")/where.md"
  fi
  read -r statements trips inside < <(python3 "$here/report/where.py" "$work" "$turns" --figures)
  record where turns="$turns" statements="$statements" trips="$trips" inside="$inside" k6="$code" "${costs[@]}"
  [ "$code" = 0 ] || complain where
  stop_all
}

idle() {
  # A socket takes two of the server's descriptors.
  local sockets="${SOCKETS:-10000}" limit="$(ulimit -Hn)" before held=0 hold=60 duration=60
  if [ "$limit" != unlimited ] && [ "$sockets" -gt $(((limit - 700) / 2)) ]; then
    sockets=$(((limit - 700) / 2))
    echo "idle: $sockets sockets, since a process may have $limit descriptors (ulimit -Hn)"
  fi
  unset COLLOQUY__LLM__BASE_URL COLLOQUY__LLM__MODEL
  ulimit -n "$((sockets * 2 + 1000))" 2>/dev/null || true
  start_stores
  start_server
  before="$(resident_kib "$server_pid")"
  sample idle
  BASE="$base" SECRET="$secret" SOCKETS="$sockets" HOLD="$hold" \
    timeout 240 k6 run --quiet "$here/idle-sockets.js" >"$work/idle.txt" 2>&1 &
  local k6=$! open=0 now
  pids+=("$k6")
  while kill -0 "$k6" 2>/dev/null; do
    now="$(curl -fsS "$base/metrics" | awk '/^colloquy_sockets_open / {print int($2)}')"
    if [ "${now:-0}" -ge "$open" ]; then open="${now:-0}"; held="$(resident_kib "$server_pid")"; fi
    sleep 0.5
  done
  code=0
  wait "$k6" || code=$?
  end_sample idle
  local each
  each="$(awk -v d="$((held - before))" -v n="$open" 'BEGIN {printf "%.1f", n ? d / n : 0}')"
  echo
  echo "idle ($stack): $open of $sockets sockets open at once"
  echo "  resident             $((before / 1024)) MiB empty, $((held / 1024)) MiB with them: $each KiB each (at most 25)"
  record idle sockets="$open" asked="$sockets" empty_mib="$((before / 1024))" held_mib="$((held / 1024))" kib_each="$each" k6="$code"
  [ "$code" = 0 ] || complain idle
  if [ "$open" -lt "$((sockets * 99 / 100))" ] || above "$each" 25; then
    echo "  too few sockets, or too much memory"
    failures=$((failures + 1))
  fi
  stop_all
}

conversations() {
  # Long enough for some conversations to have more than 50 lines to rewind.
  local count="${CONVERSATIONS:-200}" every="${EVERY:-6}" duration="${TALK:-170}" lines
  # Every conversation has a line about every three seconds.
  export COLLOQUY__CONVERSATION__PAUSE_MS="${PAUSE_MS:-2500}" COLLOQUY__CONVERSATION__READING_MS_PER_CHAR=0
  # Every line's fact ends the previous line's fact, so rewinds must restore facts, too (TEACHING=0: no facts).
  begin --latency-ms 50 --tokens-per-s 50 --facts-per-turn "${TEACHING:-1}" --verdict contradicts
  load conversations npc-conversations.js CONVERSATIONS="$count" EVERY="$every"
  unset COLLOQUY__CONVERSATION__PAUSE_MS COLLOQUY__CONVERSATION__READING_MS_PER_CHAR
  lines="$(curl -fsS "$base/metrics" | awk '/^colloquy_turn_added_seconds_count/ {print int($2)}')"
  echo
  echo "conversations ($stack): $count that go on by themselves, each cut every ${every} s or so, ${duration} s"
  echo "  lines said           $lines ($(awk -v n="$lines" -v s="$duration" 'BEGIN {printf "%.0f", n / s}')/s), interrupts $(stat "$out" interrupts count), calls failed $(stat "$out" calls_failed value)"
  echo "  interrupt to ack     p50 $(stat "$out" interrupt_ack_ms med) ms, p95 $(stat "$out" interrupt_ack_ms 'p(95)') ms, p99 $(stat "$out" interrupt_ack_ms 'p(99)') ms, most $(stat "$out" interrupt_ack_ms max) ms (at most: p99 50)"
  echo "    of the line said   p50 $(stat "$out" interrupt_ack_running_ms med) ms, p99 $(stat "$out" interrupt_ack_running_ms 'p(99)') ms"
  echo "    of earlier lines   p50 $(stat "$out" interrupt_ack_rewound_ms med) ms, p99 $(stat "$out" interrupt_ack_rewound_ms 'p(99)') ms; taken back: lines p50 $(stat "$out" lines_taken_back med), most $(stat "$out" lines_taken_back max); facts p50 $(stat "$out" facts_taken_back med), most $(stat "$out" facts_taken_back max)"
  echo "    of 50 lines        p50 $(stat "$out" interrupt_ack_deep_ms med) ms, p90 $(stat "$out" interrupt_ack_deep_ms 'p(90)') ms, most $(stat "$out" interrupt_ack_deep_ms max) ms"
  cpu_of "$lines"
  record conversations count="$count" seconds="$duration" lines="$lines" interrupts="$(stat "$out" interrupts count)" failed="$(stat "$out" calls_failed value)" \
    ack_p50="$(stat "$out" interrupt_ack_ms med)" ack_p95="$(stat "$out" interrupt_ack_ms 'p(95)')" ack_p99="$(stat "$out" interrupt_ack_ms 'p(99)')" \
    deep_p50="$(stat "$out" interrupt_ack_deep_ms med)" deep_most="$(stat "$out" interrupt_ack_deep_ms max)" depth_most="$(stat "$out" lines_taken_back max)" k6="$code" "${costs[@]}"
  [ "$code" = 0 ] || complain conversations
  stop_all
}

# Players of one NPC cut its replies, and rewind to earlier turns.
barge_in() {
  # Long enough for some sessions to have more than 50 turns to rewind.
  local count="${BARGING:-100}" duration="${BARGE_S:-100}" turns
  # Every line's fact ends the previous line's fact.
  begin --latency-ms 50 --tokens-per-s 50 --facts-per-turn "${TEACHING:-1}" --verdict contradicts
  load barge-in barge-in.js SESSIONS="$count" PAUSE_MS="${BARGE_PAUSE_MS:-1000}"
  turns="$(stat "$out" turns count)"
  echo
  echo "barge-in ($stack): $count players of one NPC, who cut every other reply and go back after every third line or so, ${duration} s"
  echo "  turns                $turns ($(awk -v n="$turns" -v s="$duration" 'BEGIN {printf "%.0f", n / s}')/s), replies cut $(stat "$out" replies_cut count), moves back $(stat "$out" rewinds count), failed $(stat "$out" asks_failed value)"
  echo "  cut to committed     p50 $(stat "$out" barge_in_ack_ms med) ms, p95 $(stat "$out" barge_in_ack_ms 'p(95)') ms, p99 $(stat "$out" barge_in_ack_ms 'p(99)') ms, most $(stat "$out" barge_in_ack_ms max) ms (at most: p99 50)"
  echo "  back to rewound      p50 $(stat "$out" rewind_ack_ms med) ms, p95 $(stat "$out" rewind_ack_ms 'p(95)') ms, p99 $(stat "$out" rewind_ack_ms 'p(99)') ms, most $(stat "$out" rewind_ack_ms max) ms (at most: p99 50); taken back: p50 $(stat "$out" turns_taken_back med), most $(stat "$out" turns_taken_back max)"
  echo "    of 50 turns        p50 $(stat "$out" rewind_ack_deep_ms med) ms, p90 $(stat "$out" rewind_ack_deep_ms 'p(90)') ms (at most 50), most $(stat "$out" rewind_ack_deep_ms max) ms (- where there is no time for so many)"
  cpu_of "$turns"
  record barge-in count="$count" seconds="$duration" turns="$turns" cuts="$(stat "$out" replies_cut count)" rewinds="$(stat "$out" rewinds count)" failed="$(stat "$out" asks_failed value)" \
    cut_p50="$(stat "$out" barge_in_ack_ms med)" cut_p99="$(stat "$out" barge_in_ack_ms 'p(99)')" \
    back_p50="$(stat "$out" rewind_ack_ms med)" back_p99="$(stat "$out" rewind_ack_ms 'p(99)')" \
    deep_p50="$(stat "$out" rewind_ack_deep_ms med)" deep_most="$(stat "$out" rewind_ack_deep_ms max)" depth_most="$(stat "$out" turns_taken_back max)" k6="$code" "${costs[@]}"
  [ "$code" = 0 ] || complain barge-in
  stop_all
}

# Actors in memory: in all, and by kind.
actors() {
  curl -fsS "$base/metrics" | awk -F'[{}" ]+' '/^colloquy_actors\{/ {all += $NF; each = each ", " $3 " " $NF} END {print all + 0 each}'
}

# Abandoned dialogues must not stay in the server.
touched() {
  local dialogues="${DIALOGUES:-20000}" idle_s="${IDLE_S:-20}" duration=1800 before empty most=0 now left held after k6 waited=0
  export COLLOQUY__ACTORS__IDLE_S="$idle_s"
  begin
  empty="$(resident_kib "$server_pid")"
  sample touched
  BASE="$base" SECRET="$secret" DIALOGUES="$dialogues" DURATION="$duration" timeout "$((duration + 60))" \
    k6 run --quiet --summary-export "$work/touched.json" "$here/touched.js" >"$work/touched.txt" 2>&1 &
  k6=$!
  pids+=("$k6")
  before="$SECONDS"
  while kill -0 "$k6" 2>/dev/null; do
    now="$(actors)"
    if [ "${now%%,*}" -gt "$most" ]; then most="${now%%,*}"; fi
    sleep 1
  done
  code=0
  wait "$k6" || code=$?
  duration="$((SECONDS - before))"
  held="$(resident_kib "$server_pid")"
  before="$SECONDS"
  # An actor checks its idle time once per interval, so the last stops within two intervals. The last turns' jobs also
  # take time.
  while left="$(actors)" && [ "${left%%,*}" != 0 ] && [ "$waited" -lt "$((2 * idle_s + 30))" ]; do
    sleep 1
    waited="$((SECONDS - before))"
  done
  after="$(resident_kib "$server_pid")"
  end_sample touched
  unset COLLOQUY__ACTORS__IDLE_S
  echo
  echo "touched ($stack): $(stat "$work/touched.json" dialogues_touched count) of $dialogues dialogues got one turn each in $duration s, calls failed $(stat "$work/touched.json" calls_failed value)"
  echo "  actors in memory     $most at most (idle ones go after $idle_s s), $left after $waited s more"
  echo "  resident             $((empty / 1024)) MiB empty, $((held / 1024)) MiB at the end of them, $((after / 1024)) MiB after"
  record touched dialogues="$(stat "$work/touched.json" dialogues_touched count)" asked="$dialogues" seconds="$duration" idle_s="$idle_s" most="$most" \
    left="${left%%,*}" waited="$waited" empty_mib="$((empty / 1024))" held_mib="$((held / 1024))" after_mib="$((after / 1024))" k6="$code"
  [ "$code" = 0 ] || complain touched
  if [ "${left%%,*}" != 0 ]; then
    echo "  actors of dialogues that nobody has touched for long"
    failures=$((failures + 1))
  fi
  stop_all
}

one() {
  case "$1" in
    steady | world) dialogue "$1" "${RATE:-200}" "${SESSIONS:-100}"; stop_all ;;
    peak) dialogue peak 0 "${SESSIONS:-32}"; stop_all ;;
    highest | rest | idle | touched | conversations | flood | soak | where) "$1" ;;
    barge-in) barge_in ;;
    first-word) first_word ;;
    all) for each in steady world first-word highest peak rest idle touched conversations barge-in flood soak where; do one "$each"; done ;;
    *) echo "load-tests/run.sh [steady|world|first-word|highest|peak|rest|idle|touched|conversations|barge-in|flood|soak|where|all]…" >&2; exit 2 ;;
  esac
}

machine
for what in "${@:-all}"; do one "$what"; done
[ "$failures" = 0 ]
