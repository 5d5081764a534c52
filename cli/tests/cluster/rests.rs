//! Idle workspaces: they rest at the cost of a name, and wake at the first call or when something is due.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::nats_server::{runtime, until};
use crate::traffic::now;
use crate::world::{Node, World};

const REST_AFTER: [&str; 2] = ["--rest-after", "2s"];

/// The threads and open files that a workspace has on a node.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cost {
    threads: Vec<String>,
    files: Vec<String>,
}

impl Cost {
    fn of(node: &Node, workspace: &str) -> Self {
        let process = format!("/proc/{}", node.pid());
        let each = |folder: &str| std::fs::read_dir(Path::new(&process).join(folder)).unwrap().flatten();
        let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        let thread = format!("ws-{workspace}");
        let threads = each("task").map(name).filter(|name| name.trim() == thread).collect();
        let target = |file: std::fs::DirEntry| std::fs::read_link(file.path()).unwrap_or_default();
        let dir = node.data(workspace);
        let files = each("fd").map(target).filter(|path| path.starts_with(&dir));
        Self { threads, files: files.map(|path| path.display().to_string()).collect() }
    }
}

/// Returns all threads of a node.
fn threads(node: &Node) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", node.pid())).unwrap().count()
}

fn lease(world: &World, workspace: &str) -> Value {
    let found = runtime().block_on(world.registry.get(&format!("lease.{workspace}")));
    let value = found.ok().flatten().and_then(|record| record.value);
    value.and_then(|value| serde_json::from_slice(&value).ok()).unwrap_or_default()
}

fn rests(world: &World, workspace: &str) -> bool {
    lease(world, workspace)["rest"].is_object()
}

/// Waits until a workspace rests, and each node has let go of it.
fn until_it_rests(world: &World, workspace: &str) {
    until("the workspace rests", || rests(world, workspace));
    until("no node has a thread or a file of it", || {
        world.nodes.iter().filter(|node| node.runs()).all(|node| Cost::of(node, workspace) == Cost::default())
    });
}

/// Makes a call at a node; returns the status and the answer.
fn call(node: &Node, path: &str, token: &str, body: Option<Value>) -> (u16, Value) {
    let url = format!("{}/w/team-b{path}", node.url);
    let client = lastword_client::plain_http().unwrap();
    let request = match body {
        Some(body) => client.post(url).json(&body),
        None => client.get(url),
    };
    runtime().block_on(async {
        let answer = request.bearer_auth(token).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    })
}

fn world(test: &str, config: &str) -> Option<(World, String)> {
    let world = World::start_with(test, config, &REST_AFTER)?;
    assert_eq!(world.run(&["cluster", "add", "team-b"]).code, 0);
    let token = world.token("team-b");
    Some((world, token))
}

#[test]
fn a_workspace_that_nobody_uses_costs_the_nodes_nothing_and_wakes_at_any_of_them() {
    let Some((mut world, human)) = world("workspaces at rest", "") else { return };
    until("each node follows it", || world.nodes.iter().all(|node| Cost::of(node, "team-b").threads.len() == 1));
    let before: Vec<usize> = world.nodes.iter().map(threads).collect();
    let (status, kilo) = call(&world.nodes[0], "/v1/agents", &human, Some(json!({ "name": "kilo" })));
    assert_eq!(status, 201, "{kilo}");
    until_it_rests(&world, "team-b");
    until("its threads are gone", || world.nodes.iter().zip(&before).all(|(node, before)| threads(node) < *before));
    assert!(!rests(&world, "main") && world.leader("main").is_some(), "the one that answers strangers doesn't rest");
    let status = world.run(&["cluster", "status"]).stdout;
    assert!(status.contains("team-b  at rest"), "{status}");
    let doctor = world.run(&["doctor", "--cluster", &world.servers()]).stdout;
    assert!(doctor.contains("the cluster has no key") && !doctor.contains("no leader"), "{doctor}");

    // A stranger is answered as by any workspace, and wakes nobody.
    let before = world.lease("team-b");
    for node in &world.nodes {
        for token in ["", "lw_guessed", &world.operator()] {
            assert_eq!(call(node, "/v1/agents", token, None).0, 401, "{token}");
        }
    }
    assert_eq!((world.lease("team-b"), rests(&world, "team-b")), (before, true));

    let last = lease(&world, "team-b")["node"].clone();
    let other = world.nodes.iter().position(|node| last != node.name).unwrap();
    let begun = now();
    let (status, agents) = call(&world.nodes[other], "/v1/agents", &human, None);
    println!("woken and answered after {:?}", begun.elapsed());
    assert_eq!(status, 200, "{agents}");
    assert!(agents.to_string().contains("kilo"), "{agents}");
    assert_eq!(world.nodes[world.led("team-b")].name, last.as_str().unwrap(), "its files are there");

    // The node that led last dies while it rests: another one has all that was acknowledged.
    until_it_rests(&world, "team-b");
    let last = lease(&world, "team-b")["node"].clone();
    let last = world.nodes.iter().position(|node| last == node.name).unwrap();
    world.nodes[last].kill();
    let others: Vec<&Node> = world.nodes.iter().filter(|node| node.runs()).collect();
    let mut woken = Vec::new();
    until("another node leads it", || {
        // Two at once: one of them wakes it, and both are answered.
        woken = std::thread::scope(|scope| {
            let calls: Vec<_> =
                others.iter().map(|node| scope.spawn(|| call(node, "/v1/agents", &human, None))).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        woken.iter().all(|(status, _)| *status == 200)
    });
    assert!(woken.iter().all(|(_, agents)| agents.to_string().contains("kilo")), "{woken:?}");
    assert_ne!(world.led("team-b"), last);
}

/// A turn ends after this time without a sign of its agent, and a schedule may tick each minute.
const TIMES: &str = "[limits]\nlease_ms = 10000\nschedule_interval_ms = 60000\n";

#[test]
fn what_is_due_happens_in_time_although_the_workspace_rests() {
    let Some((world, human)) = world("what is due at rest", TIMES) else { return };
    let node = &world.nodes[0];
    let (_, kilo) = call(node, "/v1/agents", &human, Some(json!({ "name": "kilo" })));
    let kilo = kilo["token"].as_str().unwrap();
    let asked = json!({ "type": "request", "to": "kilo", "ref": "LATE-1", "body": "go" });
    let (status, sent) = call(node, "/v1/messages", &human, Some(asked));
    assert_eq!(status, 201, "{sent}");
    let begun = now();
    assert_eq!(call(node, "/v1/inbox", kilo, None).0, 200);
    until_it_rests(&world, "team-b");
    assert!(begun.elapsed() < Duration::from_secs(9), "it rests before the turn ends");
    until("time wakes it", || !rests(&world, "team-b"));
    let woken = begun.elapsed();
    println!("the lease of a turn of 10 s ended after {woken:?}");
    assert!(woken > Duration::from_secs(9) && woken < Duration::from_secs(13), "{woken:?}");
    // Nobody has called, so that it rests again soon.
    until_it_rests(&world, "team-b");
    let again = |taken: &(u16, Value)| taken.0 == 200 && taken.1.to_string().contains("LATE-1");
    let taken = call(&world.nodes[1], "/v1/inbox", kilo, None);
    assert!(again(&taken), "the request runs again: {taken:?}");

    let every = json!({ "name": "every-minute", "cron": "* * * * *", "to": "kilo", "body": "look" });
    let (status, set) = call(node, "/v1/schedules", &human, Some(every));
    assert!(status < 300, "{set}");
    until_it_rests(&world, "team-b");
    let rest = lease(&world, "team-b");
    let due = rest["rested"]["at"].as_u64().unwrap() + rest["rest"]["lasts_ms"].as_u64().unwrap();
    let next = ms(&set["next_at"]);
    assert!(due <= next, "it rests until then, or until the turn ends: {due} {next}");
    let mut ticked = Value::Null;
    until("it wakes", || !rests(&world, "team-b"));
    until("the schedule ticks", || {
        ticked = call(&world.nodes[2], "/v1/schedules", &human, None).1["items"][0].clone();
        ticked["last_at"].is_string()
    });
    let late = ms(&ticked["last_at"]).saturating_sub(next);
    assert!(late < 3_000, "{late} ms late: {ticked}");
}

fn ms(time: &Value) -> u64 {
    lastword_wire::parse_rfc3339(time.as_str().unwrap()).unwrap().0
}
