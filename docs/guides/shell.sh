# The commands of the guides, for sh, bash and zsh. With a running server, in the server's folder:
#
#     . docs/guides/shell.sh
#
# Needs curl and jq. Another address: set BASE first. Another program: set PROGRAM first. Another folder of the server's
# data: set COLLOQUY__DATA_DIR first, because tokens are signed with the secret in that folder.
#
# A player may say 20 lines a minute (limits.player_turns_per_min), also through a backend. A script that says more
# gets 429 `rate_limited`.

BASE=${BASE:-http://127.0.0.1:8080}
PROGRAM=${PROGRAM:-$PWD/target/demo/colloquy}

unalias colloquy 2>/dev/null || true
colloquy() { "$PROGRAM" "$@"; }

BACKEND=$(colloquy token --tenant demo --role backend)
PLAYER=$(colloquy token --tenant demo --role player --player p7)
ADMIN=$(colloquy token --tenant demo --role admin)
OPERATOR=$(colloquy token --tenant demo --role operator)

# The token of the commands below. `as_player get sessions` runs one command as the player p7.
TOKEN=$BACKEND
as_player() ( TOKEN=$PLAYER; "$@" )
as_admin() ( TOKEN=$ADMIN; "$@" )
as_operator() ( TOKEN=$OPERATOR; "$@" )

# ask URL [OPTIONS OF CURL]
ask() { curl -sS -H "Authorization: Bearer $TOKEN" -w '\n' "$@"; }

# get PATH, put PATH BODY and so on, with paths below /v1/. More arguments are options of curl.
get() { _path=$1; shift; ask "$BASE/v1/$_path" "$@"; }
delete() { _path=$1; shift; ask -X DELETE "$BASE/v1/$_path" "$@"; }
send() {
  _method=$1 _path=$2 _body=$3
  shift 3
  ask -X "$_method" "$BASE/v1/$_path" -H 'Content-Type: application/json' -d "$_body" "$@"
}
put() { send PUT "$@"; }
patch() { send PATCH "$@"; }
post() {
  if [ $# -eq 1 ]; then set -- "$1" '{}'; fi
  send POST "$@"
}

# meet NPC [WORLD [PLAYER]] opens a session and prints the session's id.
meet() {
  post sessions "{\"world_id\":\"${2:-vale}\",\"npc_id\":\"$1\",\"player_id\":\"${3:-p7}\"}" | jq -r '.id // .'
}

# say SESSION LINE prints the NPC's reply. A refusal is printed whole.
say() { post "sessions/$1/turns" "$(_text "$2")" | jq -r '.reply_text // .'; }

# context SESSION LINE [INTENT] prints the prompt that the line would get, as JSON.
context() { post "sessions/$1/context" "$(_text "$2" "${3:-}")"; }

_text() { jq -nc --arg text "$1" --arg intent "${2:-}" '{$text} + if $intent == "" then {} else {$intent} end'; }
