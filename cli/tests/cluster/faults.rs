//! What happens to nodes and NATS servers under load: nothing acknowledged is lost or done twice, and one node leads an
//! epoch.

use std::sync::Arc;
use std::time::Duration;

use lastword_client::{Endpoint, SendTerms, Session, Target, Token};
use lastword_wire::session::SessionCall;

use crate::mounted::Mounted;
use crate::nats_server::{runtime, spoil_consumers, until};
use crate::proxy::{Passing, Proxy};
use crate::traffic::{Traffic, check, now, unheard};
use crate::world::{World, measures, times};

/// Prints the median and the 99th percentile of these outages.
fn published(what: &str, mut outages: Vec<Duration>) -> Duration {
    outages.sort();
    let at = |percent: usize| outages[(outages.len() * percent / 100).min(outages.len() - 1)];
    println!("{what}, {} times: outage p50 {:?}, p99 {:?}", outages.len(), at(50), at(99));
    at(99)
}

#[test]
fn a_leader_that_stood_still_writes_and_answers_nothing_afterwards() {
    let Some(mut world) = World::start("nodes that stand still") else { return };
    let agents = world.enrol();
    let traffic = Traffic::start(&world, &agents);
    for _ in 0..times(1) {
        traffic.goes_on(50);
        let leader = world.led("main");
        let session = session(&world.nodes[leader].url, &world.operator());
        world.nodes[leader].signal("STOP");
        let stopped = now();
        // The calls wait in the socket until the stopped leader continues, which must not answer them.
        let asked: Vec<_> = (0..CALLS_WAITING)
            .map(|_| {
                let (session, call) = (session.clone(), SessionCall { call: "clock".into(), ..SessionCall::default() });
                runtime().spawn(async move { session.call(call).await })
            })
            .collect();
        traffic.goes_on(50);
        println!("stood still: outage {:?}", traffic.gap_since(stopped));
        until("another node leads", || world.leader("main").is_some_and(|now| now != leader));
        // In campaigns much longer than its lease.
        std::thread::sleep(Duration::from_secs(if measures() { 10 } else { 5 }).saturating_sub(stopped.elapsed()));
        world.nodes[leader].signal("CONT");
        let replies = asked.into_iter().map(|call| runtime().block_on(call).unwrap());
        let answered = replies.filter(Result::is_ok).count();
        assert_eq!(answered, 0, "a leader that stood still answered a session");
        traffic.goes_on(50);
        world.settled("main");
    }
    let (known, _) = traffic.end();
    check(&mut world, &known);
}

/// Calls that wait while a leader stands still.
const CALLS_WAITING: usize = 200;

fn session(url: &str, token: &str) -> Session {
    let (endpoint, token) = (Endpoint::new(url), Token::new(token).unwrap());
    runtime().block_on(Session::open(&endpoint, &token)).unwrap().0
}

#[test]
fn a_rolling_restart_fails_no_call() {
    let Some(mut world) = World::start_alone("rolling restarts") else { return };
    let agents = world.enrol();
    let traffic = Traffic::start(&world, &agents);
    let mut pauses = Vec::new();
    for _ in 0..times(1) {
        for n in 0..world.nodes.len() {
            traffic.goes_on(50);
            let asked = now();
            assert_eq!(world.nodes[n].terminate(), 0, "{}", world.nodes[n].said());
            traffic.goes_on(50);
            pauses.push(traffic.gap_since(asked));
            world.nodes[n].start();
            world.settled("main");
        }
    }
    let heard = Arc::clone(&traffic.heard);
    let (known, failed) = traffic.end();
    check(&mut world, &known);
    published("a node restarted in order", pauses);
    // Clients of a node that isn't there can't be told to come back.
    let others: Vec<_> = failed
        .iter()
        .filter(|error| !error.contains("Connection refused") && !error.contains("Connection reset"))
        .collect();
    // On a busy machine an idle connection may be closed just when its client uses it again.
    let unlucky = if measures() { 0 } else { 3 };
    assert!(others.len() <= unlucky, "{others:#?}");
    let unheard = unheard(&world, &heard);
    assert!(unheard.len() <= unlucky, "deliveries that reached nobody: {unheard:#?}");
}

#[test]
fn a_node_that_stops_in_order_is_handed_nothing_back() {
    let Some(mut world) = World::start("a stop in order") else { return };
    let node = world.first("main");
    // Clients that are connected and ask nothing hold its end up.
    let idle: Vec<_> = (0..20).map(|_| idle_connection(&world.nodes[node].url)).collect();
    let before = world.lease("main");
    let mut watch = runtime().block_on(world.registry.watch(&[""])).unwrap();
    assert_eq!(world.nodes[node].terminate(), 0, "{}", world.nodes[node].said());
    drop(idle);
    until("another node leads", || world.leader("main").is_some_and(|leader| leader != node));
    world.nodes[node].start();
    world.settled("main");
    let mut leases = Vec::new();
    let read = async {
        while let Some(record) = watch.next().await {
            // The new run of the node is a member.
            if record.key == "lease.main" && Some(record.revision) > before {
                leases.push(serde_json::from_slice::<serde_json::Value>(&record.value.unwrap()).unwrap());
                if leases.iter().any(|lease| lease["released"] == false) {
                    break;
                }
            }
        }
    };
    runtime().block_on(read);
    let name = world.nodes[node].name;
    let last = world.lease("main").unwrap();
    assert_eq!(leases[0]["released"], true, "{leases:?}");
    assert!(leases[1..].iter().all(|lease| lease["node"] != name), "{leases:?}, now at {last}");
}

/// Opens a connection on which one call was answered.
fn idle_connection(url: &str) -> std::net::TcpStream {
    use std::io::{Read as _, Write as _};
    let host = url.trim_start_matches("http://");
    let mut connection = std::net::TcpStream::connect(host).unwrap();
    write!(connection, "GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    assert_ne!(connection.read(&mut [0; 1024]).unwrap(), 0);
    connection
}

#[test]
fn a_leader_whose_disk_is_low_hands_over_to_a_node_that_has_room() {
    let Some(mut world) = World::start("a leader's low disk") else { return };
    let agents = world.enrol();
    let first = world.first("main");
    assert_eq!(world.nodes[first].terminate(), 0);
    let dir = world.nodes[first].data("main").parent().unwrap().to_owned();
    std::fs::remove_dir_all(&dir).unwrap();
    let Some(disk) = Mounted::over(&dir, 200 << 20) else { return };
    world.nodes[first].start();
    until("it leads again", || world.leader("main") == Some(first));
    let traffic = Traffic::start(&world, &agents);
    traffic.goes_on(50);
    // Below the watermark, and not full.
    disk.leave("ballast", 6 << 20);
    until("a node leads that has room", || world.leader("main").is_some_and(|leader| leader != first));
    traffic.goes_on(50);
    let servers = world.servers();
    let doctor = world.run(&["doctor", "--cluster", &servers]);
    let fault = format!("✗ the node {} can't lead main", world.nodes[first].name);
    assert!(doctor.stdout.contains(&fault), "{doctor:?}");
    disk.empty("ballast");
    until("it leads again", || world.leader("main") == Some(first));
    let (known, _) = traffic.end();
    check(&mut world, &known);
    drop(world);
}

#[test]
fn a_nats_server_whose_disk_stays_full_is_named_and_writes_go_on() {
    let Some(mut world) = World::start("a full disk of a NATS server") else { return };
    let connection = world.nats.connect();
    let full = world.nats.leader(&connection, "main");
    world.nats.servers[full].kill();
    let disk = Mounted::under(&world.nats.data(full), 128 << 20);
    world.nats.servers[full].resume();
    let Some(disk) = disk else { return };
    let agents = world.enrol();
    let traffic = Traffic::start(&world, &agents);
    traffic.goes_on(50);
    disk.fill("ballast");
    traffic.goes_on(50);
    let metric = format!("lastword_nats_server_lagging{{server=\"n{full}\"}} 1");
    until("each node names it", || world.nodes.iter().all(|node| node.metrics().contains(&metric)));
    let client = world.nodes[0].client(&world.operator());
    let lagging = || runtime().block_on(client.ready()).map_or(9, |ready| ready.stores_lagging);
    until("the leader says so", || lagging() == 1);
    let servers = world.servers();
    let doctor = world.run(&["doctor", "--cluster", &servers, "--nats-monitor", &world.nats.monitors.join(",")]);
    for fault in ["is up and doesn't store what the others do", "has no JetStream"] {
        assert!(doctor.stdout.contains(&format!("✗ the NATS server n{full} {fault}")), "{doctor:?}");
    }
    disk.empty("ballast");
    world.nats.servers[full].kill();
    world.nats.servers[full].resume();
    until("no node names it any more", || lagging() == 0);
    let (known, _) = traffic.end();
    check(&mut world, &known);
}

#[test]
fn a_humans_stop_goes_through_while_the_stream_is_at_its_limit() {
    let Some(world) = World::start("a stream at its limit") else { return };
    let agents = world.enrol();
    let connection = world.nats.connect();
    let human = world.nodes[1].client(&world.operator());
    let send = |n: usize| {
        let request = crate::load::request(&format!("key-{n}"));
        runtime().block_on(human.send(&request, &SendTerms::default()))
    };
    send(0).unwrap();
    let stream = runtime().block_on(connection.jetstream().get_stream("LASTWORD_main")).unwrap();
    let info = stream.cached_info().clone();
    let mut full = info.config;
    full.max_bytes = info.state.bytes.cast_signed();
    runtime().block_on(connection.jetstream().update_stream(full)).unwrap();
    let mut sent = 1;
    until("the stream is full", || {
        sent += 1;
        send(sent).is_err()
    });
    // From any node, as often as it takes.
    for node in world.nodes.iter().chain(&world.nodes) {
        let operator = node.client(&world.operator());
        runtime().block_on(operator.pause(Target::Agent("agent-0"))).unwrap();
        runtime().block_on(operator.stop(Target::Workspace)).unwrap();
    }
    assert!(send(sent + 1).is_err());
    let servers = world.servers();
    let doctor = world.run(&["doctor", "--cluster", &servers]).stdout;
    assert!(doctor.contains("✗ the stream of main has") && doctor.contains("--max-bytes=-1"), "{doctor}");
    drop(agents);
}

#[test]
fn a_message_that_no_node_wrote_is_named_and_a_human_sets_it_aside() {
    let Some(mut world) = World::start("foreign messages") else { return };
    let agents = world.enrol();
    let connection = world.nats.connect();
    let traffic = Traffic::start(&world, &agents);
    traffic.goes_on(50);
    let publish = |subject: &str, bytes: Vec<u8>| {
        let subject = subject.to_owned();
        let published = async { connection.jetstream().publish(subject, bytes.into()).await.unwrap().await.unwrap() };
        runtime().block_on(published).sequence
    };
    // An epoch that begins once more begins nothing.
    let stream = runtime().block_on(connection.jetstream().get_stream("LASTWORD_main")).unwrap();
    let first = runtime().block_on(stream.get_raw_message(1)).unwrap();
    assert_eq!(first.subject.as_str(), "lastword.main.epoch");
    publish("lastword.main.epoch", first.payload.to_vec());
    traffic.goes_on(50);
    let leader = world.led("main");
    world.nodes[leader].kill();
    publish("lastword.main.epoch", first.payload.to_vec());
    traffic.goes_on(50);
    world.nodes[leader].start();
    world.settled("main");
    let at = publish("lastword.main.log", b"nobody's".to_vec());
    let servers = world.servers();
    let named = format!("is damaged at message {at}");
    until("each node names it", || world.nodes.iter().all(|node| node.said().contains(&named)));
    until("doctor says so", || world.run(&["doctor", "--cluster", &servers]).stdout.contains("can't lead main"));
    let refused = world.run(&["cluster", "set-aside", "main", "9999999", "--yes"]);
    assert!(refused.code == 1 && refused.stderr.contains("has no message 9999999"), "{refused:?}");
    // One that was written by a node still counts.
    world.run(&["cluster", "set-aside", "main", "2", "--yes"]).ok();
    world.run(&["cluster", "set-aside", "main", &at.to_string(), "--yes"]).ok();
    traffic.goes_on(50);
    world.settled("main");
    let (known, _) = traffic.end();
    check(&mut world, &known);
}

#[test]
fn a_leader_keeps_its_lease_where_a_renewal_takes_more_than_half_a_second() {
    let Some(mut world) = World::start("slow renewals") else { return };
    let agents = world.enrol();
    let way = Duration::from_millis(300);
    world.delay(way, 0.0);
    let traffic = Traffic::start(&world, &agents);
    // The nodes may elect once, as the delay begins, and hand over once.
    until("a leader keeps its lease", || {
        let epoch = world.lease("main");
        traffic.goes_on(60);
        world.lease("main") == epoch
    });
    world.delay(Duration::ZERO, 0.0);
    let (known, _) = traffic.end();
    check(&mut world, &known);
}

#[test]
fn a_clock_that_is_an_hour_off_changes_nothing() {
    let test = "clocks";
    let Some(mut world) = World::start(test) else { return };
    if world.move_clocks(test).is_none() {
        return;
    }
    let agents = world.enrol();
    let traffic = Traffic::start(&world, &agents);
    let mut outages = Vec::new();
    for offset in [3_600, -3_600].into_iter().cycle().take(2 * times(1)) {
        traffic.goes_on(50);
        let leader = world.led("main");
        let epoch = world.lease("main");
        let moved = now();
        world.clock(leader, offset);
        traffic.goes_on(200);
        // On a busy machine a lease may end for another reason.
        assert!(!measures() || world.lease("main") == epoch, "a clock that jumps ends no lease");
        outages.push(traffic.gap_since(moved));
        // The next leader's clock is another one.
        world.nodes[leader].kill();
        traffic.goes_on(50);
        world.nodes[leader].start();
        world.settled("main");
        world.clock(leader, 0);
    }
    let (known, failed) = traffic.end();
    check(&mut world, &known);
    assert!(known.answers.len() > 100, "{failed:#?}");
    published("the leading node's clock moved by an hour", outages);
}

#[test]
fn a_pause_of_all_nats_servers_leaves_no_workspace_without_a_leader() {
    let Some(mut world) = World::start("paused NATS servers") else { return };
    let agents = world.enrol();
    let traffic = Traffic::start(&world, &agents);
    for _ in 0..times(1) {
        traffic.goes_on(50);
        let paused = now();
        world.nats.servers.iter().for_each(|server| server.signal("STOP"));
        // Longer than a node serves without a renewal.
        std::thread::sleep(Duration::from_secs(3));
        world.nats.servers.iter().for_each(|server| server.signal("CONT"));
        traffic.goes_on(50);
        println!("paused for 3 s: outage {:?}", traffic.gap_since(paused));
    }
    let (known, _) = traffic.end();
    check(&mut world, &known);
}

#[test]
fn a_consumer_that_cannot_begin_again_leaves_no_node_deaf() {
    let Some(mut world) = World::start("consumers that can't begin again") else { return };
    let agents = world.enrol();
    let connection = world.nats.connect();
    ["KV_LASTWORD", "LASTWORD_main"].iter().for_each(|stream| spoil_consumers(&connection, stream));
    let proxies = || world.nodes.iter().flat_map(|node| &node.proxies);
    proxies().for_each(|proxy| proxy.set(Passing::Nothing));
    until("each node has lost its connections", || proxies().all(Proxy::is_idle));
    proxies().for_each(|proxy| proxy.set(Passing::All));
    for node in &world.nodes {
        let client = node.client(&world.operator());
        until("the node knows who leads", || runtime().block_on(client.agents()).is_ok());
    }
    let traffic = Traffic::start(&world, &agents);
    traffic.goes_on(50);
    let leader = world.led("main");
    let written = world.nodes[leader].position("main");
    until("each node has followed the log", || world.nodes.iter().all(|node| node.position("main") >= written));
    world.nodes[leader].kill();
    traffic.goes_on(50);
    world.nodes[leader].start();
    world.settled("main");
    let (known, _) = traffic.end();
    check(&mut world, &known);
}
