#!/bin/sh
# The scheduler, where it stays: sh scheduler.sh CERTIFICATES HOST [option of `dask scheduler` ...]
# It listens on HOST alone, and talks to nobody without a certificate of the same authority. Its address is in
# scheduler.json, which workers and `cluster.scheduler_file` read on a shared file system.
set -eu
certificates=$1 host=$2
shift 2
exec dask scheduler --protocol tls --host "$host" --scheduler-file scheduler.json \
  --tls-ca-file "$certificates/ca.pem" --tls-cert "$certificates/own.pem" --tls-key "$certificates/own.key" \
  --no-dashboard --dashboard-address 127.0.0.1:0 "$@"
