//! Nodes that start while NATS isn't all there.

use std::fs::File;
use std::process::Stdio;

use crate::nats_server::{One, free_port, program, runtime, until};
use crate::program::{PATH, finish, lastword};
use crate::world::World;

#[test]
fn a_node_starts_while_one_of_three_nats_servers_is_away() {
    let Some(mut world) = World::start("a start without one NATS server") else { return };
    let connection = world.nats.connect();
    let (leader, stream) = (world.led("main"), world.nats.leader(&connection, "main"));
    let node = (leader + 1) % 3;
    world.nats.servers[stream].kill();
    until("NATS has elected another leader", || world.nats.leader(&connection, "main") != stream);
    assert_eq!(world.nodes[node].terminate(), 0, "{}", world.nodes[node].said());
    world.nodes[node].start();
    world.settled("main");
    let client = world.nodes[node].client(&world.operator());
    until("the node answers", || runtime().block_on(client.agents()).is_ok());
    // What it didn't say at the start is asked when it is back: this one no longer syncs.
    let monitored = |world: &World| world.nodes[node].said().contains("acknowledges before the disk has it");
    assert!(!monitored(&world), "{}", world.nodes[node].said());
    world.nats.servers[stream].unsync();
    world.nats.servers[stream].resume();
    until("the node says that the server doesn't sync", || monitored(&world));
}

#[test]
fn a_node_waits_for_nats_and_says_so() {
    let Some(program) = program("a start before NATS") else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut nats = One::start(&program);
    nats.server.kill();
    let (listen, servers) = (format!("127.0.0.1:{}", free_port()), nats.server.url());
    let serve =
        ["serve", "--cluster", &servers, "--listen", &listen, "--node", "a", "--replicas", "1", "--not-durable"];
    let errors = dir.path().join("err");
    let start = || {
        let mut node = lastword(dir.path());
        node.args(serve).env("PATH", PATH).stdout(Stdio::null()).stderr(File::create(&errors).unwrap()).spawn().unwrap()
    };
    let waits = || std::fs::read_to_string(&errors).unwrap().contains("NATS isn't ready; trying again");
    // A signal ends the wait.
    let mut node = start();
    until("the node says that it waits", waits);
    let pid = node.id().to_string();
    assert!(std::process::Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    assert_eq!(node.wait().unwrap().code(), Some(0));
    let mut node = start();
    until("the node says that it waits", waits);
    nats.server.resume();
    let token = dir.path().join(".lastword/main/operator.token");
    until("the node leads", || {
        assert!(node.try_wait().unwrap().is_none(), "{}", std::fs::read_to_string(&errors).unwrap());
        token.exists()
    });
    let url = format!("http://{listen}");
    let list = ["--url", &url, "--token-file", token.to_str().unwrap(), "agent", "list"];
    until("the node answers", || finish(lastword(dir.path()).args(list), "").code == 0);
    node.kill().unwrap();
    node.wait().unwrap();
}

#[test]
fn a_node_that_remembers_what_nats_does_not_have_serves_only_if_a_human_says_so() {
    let Some(mut world) = World::start("an emptied NATS") else { return };
    let agents = world.enrol();
    world.nodes.iter_mut().for_each(|node| assert_eq!(node.terminate(), 0));
    world.nats.wipe();
    world.nodes[0].start();
    assert_eq!(world.nodes[0].ends(), 3, "{}", world.nodes[0].said());
    let said = world.nodes[0].said();
    assert!(said.contains("NATS doesn't have main") && said.contains("--accept-missing"), "{said}");
    // A node that remembers nothing makes a workspace of that name; it isn't the one that is missed.
    std::fs::remove_dir_all(world.nodes[1].data("main")).unwrap();
    world.nodes[1].start();
    until("the new workspace has its first human", || world.nodes[1].data("main").join("operator.token").exists());
    world.nodes[0].start();
    until("the node says what it misses", || world.nodes[0].said().contains("lost what was acknowledged"));
    let servers = world.servers();
    let doctor = |world: &World| world.run(&["doctor", "--cluster", &servers]).stdout;
    until("doctor says so", || doctor(&world).contains("✗ the node a can't lead main"));
    assert_eq!(world.nodes[0].terminate(), 0);
    world.nodes[0].with(&["--accept-missing"]);
    world.nodes[0].start();
    until("doctor says so no longer", || !doctor(&world).contains("can't lead main"));
    assert!(world.nodes[0].data("main").join("aside-1").exists());
    let old = world.nodes[0].client(&agents[0]);
    assert!(runtime().block_on(old.agents()).is_err(), "its tokens are those of the new workspace");
}

#[test]
fn a_trial_on_one_nats_server_says_so_once() {
    let Some(program) = program("a trial on one NATS server") else { return };
    let dir = tempfile::tempdir().unwrap();
    let nats = One::start(&program);
    let servers = nats.server.url();
    let mut nodes: Vec<_> = [("a", &["--replicas", "1"][..]), ("b", &[])]
        .into_iter()
        .map(|(name, more)| {
            let listen = format!("127.0.0.1:{}", free_port());
            let serve =
                ["--data", name, "serve", "--cluster", &servers, "--listen", &listen, "--node", name, "--not-durable"];
            let mut node = lastword(dir.path());
            let node = node.args(serve).args(more).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            until("the node serves", || dir.path().join(name).join("main/operator.token").exists());
            node
        })
        .collect();
    let cluster =
        |args: &[&str]| finish(lastword(dir.path()).env("LASTWORD_CLUSTER", &servers).arg("cluster").args(args), "");
    cluster(&["add", "team-b"]).ok();
    until("it has its first human", || dir.path().join("a/team-b/operator.token").exists());
    nodes.iter_mut().for_each(|node| node.kill().unwrap());
    nodes.iter_mut().for_each(|node| assert!(!node.wait().unwrap().success()));
}

#[test]
fn a_new_token_of_the_operator_is_made_once_for_a_start() {
    let Some(mut world) = World::start_with("renewed tokens", "", &["--renew-operator-token"]) else { return };
    let first = world.first("main");
    let token = world.operator();
    world.nodes[first].kill();
    let other = world.nodes[(first + 1) % 3].client(&token);
    until("another node leads", || world.leader("main").is_some_and(|leader| leader != first));
    until("it answers", || runtime().block_on(other.agents()).is_ok());
    assert!(
        world
            .nodes
            .iter()
            .all(|node| { std::fs::read_to_string(node.data("main").join("operator.token")).unwrap().trim() == token })
    );
    // Each start of all nodes makes one.
    for n in 0..3 {
        if n != first {
            world.nodes[n].kill();
        }
    }
    world.nodes.iter_mut().for_each(crate::world::Node::start);
    until("there is a new one", || world.leader("main").is_some() && world.operator() != token);
}
