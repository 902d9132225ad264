#!/bin/sh
# A worker, on each machine: sh worker.sh CERTIFICATES HOST [option of `dask worker` ...]
# HOST is this machine's; --nworkers, --nthreads and --memory-limit say how much of it is given. The address of the
# scheduler is in scheduler.json, in this directory; or say --scheduler-file PATH.
set -eu
# what workers do beside their tasks, as seldom as may be: else a pass takes a tenth longer
export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL=1s
certificates=$1 host=$2
shift 2
exec dask worker --scheduler-file scheduler.json --host "$host" \
  --tls-ca-file "$certificates/ca.pem" --tls-cert "$certificates/own.pem" --tls-key "$certificates/own.key" \
  --no-dashboard --dashboard-address 127.0.0.1:0 "$@"
