#!/bin/sh
# An authority of your own and one certificate for scheduler, workers and whoever gives them jobs:
#
#   sh certificates.sh DIRECTORY HOST [HOST ...]
#
# HOST is a name or address by which the scheduler or a worker is reached. Whoever has own.key can run code on the
# workers: only its owner may read it, and a directory that others can write to is no place for it.
set -eu
umask 077

directory=$1
shift
names=$(for host in "$@"; do
  case $host in
    *[!0-9.]*) printf ',DNS:%s' "$host" ;;
    *) printf ',IP:%s' "$host" ;;
  esac
done)
mkdir -p "$directory"
cd "$directory"
[ ! -e ca.key ] || { echo "$directory/ca.key is there: choose another directory, or remove what is in it" >&2; exit 1; }

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 \
  -subj "/CN=authority of skpca" -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
  -subj "/CN=skpca" -keyout own.key -out own.csr 2>/dev/null
printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "${names#,}" > own.ext
openssl x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -extfile own.ext -out own.pem 2>/dev/null
rm own.csr own.ext
echo "$directory: ca.pem, own.pem and own.key go to every machine; ca.key makes more of them, and stays"
