//! What the nodes make of an address at which one of them isn't reached, or isn't what answers.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use std::time::Duration;

use lastword_client::{ClientError, SendTerms, Target};

use crate::nats_server::{free_port, runtime, until};
use crate::proxy::{Passing, Proxy};
use crate::table::{STOP_MAX, stopped};
use crate::traffic::now;
use crate::world::{World, measures};

/// The bar of a node that says that it can't carry a human's stop out.
const SAID_MAX: Duration = Duration::from_millis(1_100);
/// The time after which a node that doesn't answer never will.
const WITHIN: Duration = Duration::from_secs(20);

#[test]
fn a_leader_that_the_others_do_not_reach_hands_over_and_doctor_says_so() {
    let Some(mut world) = World::start("a leader that isn't reached") else { return };
    let first = world.first("main");
    let proxy = Proxy::to(world.nodes[first].port());
    assert_eq!(world.nodes[first].terminate(), 0);
    world.nodes[first].with(&["--advertise", &format!("http://{}", proxy.address)]);
    world.nodes[first].start();
    until("it leads again", || world.leader("main") == Some(first));
    let other = world.nodes[(first + 1) % 3].client(&world.operator());
    until("another node passes calls on to it", || runtime().block_on(other.agents()).is_ok());
    proxy.set(Passing::Nothing);
    until("a node leads that is reached", || world.leader("main").is_some_and(|leader| leader != first));
    until("another node passes calls on to it", || runtime().block_on(other.agents()).is_ok());
    let servers = world.servers();
    let said = || world.run(&["doctor", "--cluster", &servers]).stdout;
    let fault = format!("✗ the node {} isn't reached at http://{} by ", world.nodes[first].name, proxy.address);
    until("doctor says so", || said().contains(&fault));
    proxy.set(Passing::All);
    until("it leads again", || world.leader("main") == Some(first));
    until("doctor says so no longer", || !said().contains(&fault));
}

#[test]
fn nodes_that_do_not_reach_each_other_answer_and_stop_through_nats() {
    let Some(mut world) = World::start("nodes cut off from each other") else { return };
    let fronts = world.fronts();
    let agents = world.enrol();
    let send = |node: &crate::world::Node, n: usize| {
        let (human, request) = (node.client(&world.operator()), crate::load::request(&format!("key-{n}")));
        runtime().block_on(async move { human.send(&request, &SendTerms::default()).await }).unwrap();
    };
    send(&world.nodes[0], 0);
    fronts.iter().for_each(|front| front.set(Passing::Silence));
    let cut = now();
    let stops: Vec<_> = (0..3)
        .map(|n| stopped(world.nodes[n].client(&world.operator()), format!("agent-{n}"), cut))
        .map(|stop| runtime().spawn(async { tokio::time::timeout(WITHIN, stop).await }))
        .collect();
    for stop in stops {
        let after = runtime().block_on(stop).unwrap().expect("a human stops through each node");
        assert!(!measures() || after < STOP_MAX, "{after:?}");
    }
    for (n, node) in world.nodes.iter().enumerate() {
        let reader = node.client(&agents[3]);
        let read = runtime().block_on(async { tokio::time::timeout(WITHIN, reader.agents()).await });
        assert_eq!(read.expect("each node answers").unwrap().items.len(), 5);
        send(node, 3 + 4 * n);
        let stranger = runtime().block_on(node.client("lw_stranger").agents()).unwrap_err();
        assert!(matches!(stranger, ClientError::Refused(problem) if problem.status == 401));
    }
}

/// More polls than a node carries out at a time for those that don't reach it, and how long each waits.
const POLLS: usize = 300;
const POLL: Duration = Duration::from_secs(30);

#[test]
fn polls_through_nats_keep_no_human_out_and_what_is_too_much_is_refused_at_once() {
    let Some(mut world) = World::start("polls through NATS") else { return };
    let fronts = world.fronts();
    let agents = world.enrol();
    let node = &world.nodes[(world.led("main") + 1) % 3];
    let human = node.client(&world.operator());
    fronts.iter().for_each(|front| front.set(Passing::Silence));
    until("calls go through NATS", || runtime().block_on(human.agents()).is_ok());
    let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
    let (_in, began) = (runtime().enter(), now());
    let mut polls = tokio::task::JoinSet::new();
    for n in 0..POLLS {
        let (agent, ended) = (node.client(&agents[n % agents.len()]), ended.clone());
        polls.spawn(async move { ended.send(agent.inbox_once(POLL).await.map(|_| ())) });
    }
    let refused = async {
        loop {
            // On a busy machine one may be refused for another reason.
            match ends.recv().await {
                Some(Err(ClientError::Refused(problem))) if problem.detail.contains("too many calls of nodes") => {
                    return problem;
                }
                end => println!("{end:?}"),
            }
        }
    };
    let problem = runtime().block_on(async { tokio::time::timeout(WITHIN, refused).await }).expect("one is refused");
    assert_eq!((problem.status, problem.retry_after_ms), (503, Some(1_000)), "{problem:?}");
    // The others hold all places by now.
    let asked = now();
    let stop = stopped(human.clone(), "agent-0".to_owned(), asked);
    let after = runtime().block_on(async { tokio::time::timeout(WITHIN, stop).await });
    let after = after.expect("a human stops, however many wait");
    assert!(!measures() || after < STOP_MAX, "{after:?}");
    let approvals = runtime().block_on(async { tokio::time::timeout(WITHIN, human.approvals()).await });
    assert!(approvals.expect("a human reads what is to be decided").is_ok());
    while polls.try_join_next().is_some() {}
    // A busy machine may have taken longer than they wait.
    assert!(polls.len() > POLLS / 2 || began.elapsed() > POLL, "the others still wait: {}", polls.len());
}

#[test]
fn a_node_that_nats_does_not_hear_says_so_and_names_another_to_those_it_knows() {
    let Some(world) = World::start("nodes cut off from NATS") else { return };
    let operator = world.operator();
    let leader = world.first("main");
    let follower = (leader + 1) % 3;
    let stop = |token: &str, node: usize| {
        let asked = now();
        let human = world.nodes[node].client(token);
        let refused = runtime().block_on(human.stop(Target::Agent("operator"))).unwrap_err();
        (asked.elapsed(), refused)
    };
    let others = |node: usize| [(node + 1) % 3, (node + 2) % 3].map(|other| world.nodes[other].url.clone());
    for (node, status) in [(leader, 502), (follower, 503)] {
        world.nodes[node].proxies.iter().for_each(|proxy| proxy.set(Passing::Silence));
        if node == follower {
            until("it serves nothing", || runtime().block_on(world.nodes[node].client(&operator).agents()).is_err());
        }
        let (after, refused) = stop(&operator, node);
        let ClientError::Refused(problem) = refused else { panic!("{refused}") };
        assert_eq!((problem.status, problem.retry_after_ms), (status, Some(1_000)), "{problem:?}");
        assert!(problem.detail.contains("doesn't reach a majority of the NATS servers"), "{problem:?}");
        assert!(others(node).iter().any(|url| problem.hint.contains(url)), "{problem:?}");
        assert!(!measures() || after < SAID_MAX, "{after:?}");
        until("it serves nothing", || runtime().block_on(world.nodes[node].client(&operator).agents()).is_err());
        let (_, refused) = stop("lw_stranger", node);
        assert!(matches!(&refused, ClientError::Refused(problem) if !problem.hint.contains("http")), "{refused:?}");
        world.nodes[node].proxies.iter().for_each(|proxy| proxy.set(Passing::All));
        until("it serves again", || runtime().block_on(world.nodes[node].client(&operator).agents()).is_ok());
    }
}

/// A server that is no node; returns its port, and what it is sent.
fn another_program() -> (u16, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, seen) = (listener.local_addr().unwrap().port(), Arc::<Mutex<String>>::default());
    let sent = Arc::clone(&seen);
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let mut buffer = [0; 4096];
            let Ok(read) = connection.read(&mut buffer) else { continue };
            sent.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
            let _gone = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    });
    (port, seen)
}

#[test]
fn a_node_takes_no_address_at_which_it_is_not_reached_itself_and_none_gets_a_token_there() {
    let Some(mut world) = World::start("addresses of others") else { return };
    let (port, seen) = another_program();
    let servers = world.servers();
    let there = format!("http://127.0.0.1:{port}");
    let serve = |more: &[&str]| {
        let own = ["serve", "--cluster", &servers, "--not-durable", "--node", "d"];
        world.run(&[&own[..], more].concat())
    };
    let listen = format!("127.0.0.1:{}", free_port());
    let another = serve(&["--listen", &listen, "--advertise", &there]);
    assert!(another.code == 3 && another.stderr.contains("what answers there isn't this node"), "{another:?}");
    let everywhere = serve(&["--listen", "0.0.0.0:0", "--insecure-http"]);
    assert!(everywhere.code == 3 && everywhere.stderr.contains("name it with --advertise"), "{everywhere:?}");
    let clear = serve(&["--listen", &listen, "--advertise", "http://192.0.2.1:7171"]);
    assert!(clear.code == 3 && clear.stderr.contains("--insecure-http"), "{clear:?}");
    assert_eq!(world.nodes.iter().filter(|node| node.said().contains("a node isn't reached")).count(), 0);
    // A node that is what it says, until another program takes its address.
    let first = world.first("main");
    let own = world.nodes[first].url.trim_start_matches("http://").to_owned();
    let other = world.nodes[(first + 1) % 3].client(&world.operator());
    until("another node passes calls on to it", || runtime().block_on(other.agents()).is_ok());
    world.nodes[first].kill();
    let taken = TcpListener::bind(&own).unwrap();
    let sent = Arc::clone(&seen);
    std::thread::spawn(move || {
        for mut connection in taken.incoming().flatten() {
            let mut buffer = [0; 4096];
            let Ok(read) = connection.read(&mut buffer) else { continue };
            sent.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    });
    until("another node leads", || world.leader("main").is_some_and(|leader| leader != first));
    let seen = seen.lock().unwrap();
    assert!(seen.contains("/cluster/proof/") && !seen.contains("/cluster/metrics"), "{seen}");
}

#[test]
fn nodes_with_certificates_of_an_authority_of_their_own_pass_calls_on() {
    let dir = tempfile::tempdir().unwrap();
    let [cert, key] = crate::nats_access::certificate(dir.path());
    let [cert, key] = [cert, key].map(|path| path.to_str().unwrap().to_owned());
    let args = ["--tls-cert", &cert, "--tls-key", &key];
    let Some(world) = World::start_with("a private authority", "", &args) else { return };
    let token = world.nodes[0].data("main").join("operator.token");
    for node in &world.nodes {
        let url = node.url.replace("http://", "https://");
        let args =
            ["--url", &url, "--tls-ca", &cert, "--token-file", token.to_str().unwrap(), "--json", "agent", "list"];
        until("the node passes the call on", || world.run(&args).code == 0);
    }
}
