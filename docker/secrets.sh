#!/bin/sh
# Creates the required secrets once, each from 32 random bytes:
#   docker/secrets.sh              docker/.env, which Compose reads
#   docker/secrets.sh kubernetes   docker/kubernetes/secret.yaml, a Secret for `kubectl apply -f`
# Git tracks neither file, and only the owner may read them. Existing lines are never changed; missing lines in
# docker/.env are added.
set -eu
cd "$(dirname "$0")"
umask 077

random() { od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n'; }

compose() {
  touch .env
  chmod 600 .env
  # A manually written file may lack the final line break.
  [ -z "$(tail -c 1 .env)" ] || echo >>.env
  for name in COLLOQUY_SECRET NODE_SECRET POSTGRES_PASSWORD LEDGER_PASSWORD GRAFANA_PASSWORD; do
    grep -q "^$name=." .env || { echo "$name=$(random)" >>.env && echo "docker/.env: $name is new"; }
  done
  echo "docker/.env has all secrets"
}

kubernetes() {
  if [ -e kubernetes/secret.yaml ]; then
    echo "docker/kubernetes/secret.yaml is there already, and stays as it is" >&2
    exit 1
  fi
  password="$(random)"
  cat >kubernetes/secret.yaml <<EOF
# Made by docker/secrets.sh. Fill in the keys of the models, and keep it to yourself: kubectl apply -f docker/kubernetes/secret.yaml
apiVersion: v1
kind: Secret
metadata:
  name: colloquy
  namespace: colloquy
type: Opaque
stringData:
  # The same for all nodes.
  COLLOQUY__AUTH__HS256_SECRET: "$(random)"
  COLLOQUY__NODE__SECRET: "$(random)"
  # The role owns its database and is no superuser, so that row-level security binds it. As the administrator of Postgres:
  #   CREATE ROLE colloquy LOGIN PASSWORD '$password'; CREATE DATABASE colloquy OWNER colloquy;
  COLLOQUY__LEDGER__URL: "postgres://colloquy:$password@postgres:5432/colloquy?sslmode=require"
  COLLOQUY__LLM__API_KEY: ""
  COLLOQUY__EMBEDDER__API_KEY: ""
EOF
  echo "docker/kubernetes/secret.yaml is written"
}

case "${1:-compose}" in
  compose) compose ;;
  kubernetes) kubernetes ;;
  *)
    echo "usage: docker/secrets.sh [compose | kubernetes]" >&2
    exit 2
    ;;
esac
