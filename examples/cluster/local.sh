#!/bin/sh
# Three NATS servers and three Lastword nodes on this machine, until Ctrl-C. Needs `nats-server` and `lastword` in PATH, or
# named by NATS_SERVER and LASTWORD. Data and logs are in ./cluster.
set -eu
nats=${NATS_SERVER:-nats-server}
lastword=${LASTWORD:-lastword}
dir=${1:-cluster}
mkdir -p "$dir"
pids=
# By it the servers know each other. Clients need none: whoever may log in to this machine reaches the servers.
route=r$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
umask 077
# By it the nodes seal their secrets in NATS. It stays for the next start.
key="$dir/cluster.key"
[ -s "$key" ] || od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$key"
trap 'trap - EXIT; kill $pids 2>/dev/null || :; wait' EXIT
trap 'exit 0' INT TERM
for n in 1 2 3; do
    cat >"$dir/n$n.conf" <<CONF
server_name: n$n
listen: 127.0.0.1:422$n
http: 127.0.0.1:822$n
jetstream { store_dir: "$dir/n$n", sync_interval: always }
cluster {
  name: lastword
  listen: 127.0.0.1:622$n
  authorization { user: route, password: $route }
  routes: [nats://route:$route@127.0.0.1:6221, nats://route:$route@127.0.0.1:6222, nats://route:$route@127.0.0.1:6223]
}
CONF
    "$nats" -c "$dir/n$n.conf" >"$dir/n$n.log" 2>&1 &
    pids="$pids $!"
done
n=0
for node in a b c; do
    n=$((n + 1))
    "$lastword" --data "$dir/$node" serve --node "$node" --listen "127.0.0.1:717$n" --cluster-key "$key" \
        --cluster nats://127.0.0.1:4221,nats://127.0.0.1:4222,nats://127.0.0.1:4223 \
        --nats-monitor http://127.0.0.1:8221,http://127.0.0.1:8222,http://127.0.0.1:8223 2>"$dir/$node.log" &
    pids="$pids $!"
done
wait
