//! Several workspaces on the same nodes: nothing crosses from one to another.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::nats_server::{runtime, until};
use crate::traffic::{Traffic, check};
use crate::world::{World, measures, times};

async fn call(url: &str, host: Option<&str>, token: &str, body: Option<&Value>) -> (u16, Value) {
    let client = lastword_client::plain_http().unwrap();
    let request = match body {
        Some(body) => client.post(url).json(body),
        None => client.get(url),
    };
    let request = host.into_iter().fold(request.bearer_auth(token), |request, host| request.header("Host", host));
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

#[test]
fn a_token_of_one_workspace_is_nothing_in_another() {
    let Some(world) = World::start("workspaces") else { return };
    for name in ["team-b", "team-c"] {
        let added = world.run(&["cluster", "add", name]);
        assert_eq!(added.code, 0, "{added:?}");
    }
    let again = world.run(&["cluster", "--json", "add", "team-b"]);
    assert_eq!(again.json()["new"], false);
    world.led("team-b");
    let (main, b) = (world.operator(), world.token("team-b"));
    runtime().block_on(async {
        let agent = json!({ "name": "kilo" });
        for node in &world.nodes {
            let at = |path: &str| format!("{}{path}", node.url);
            let (status, list) = call(&at("/w/team-b/v1/agents"), None, &b, None).await;
            assert_eq!(status, 200, "{list}");
            assert_eq!(call(&at("/v1/agents"), Some("team-b.localhost"), &b, None).await.0, 200);
            for (url, host, token) in [
                ("/v1/agents", None, &b),
                ("/w/main/v1/agents", None, &b),
                ("/w/team-b/v1/agents", None, &main),
                ("/w/team-c/v1/agents", None, &b),
                ("/v1/agents", Some("team-b.localhost"), &main),
            ] {
                let (status, fault) = call(&at(url), host, token, None).await;
                assert_eq!((status, &fault["code"]), (401, &json!("unauthenticated")), "{url} {host:?}");
            }
            assert_eq!(call(&at("/w/nobody/v1/agents"), None, &b, None).await.0, 401);
            let (status, fault) = call(&at("/w/team-b/v1/agents"), Some("main.localhost"), &b, None).await;
            assert_eq!(status, 400, "{fault}");
            // What only nodes may say is of no use to others.
            let forged = lastword_client::plain_http().unwrap().get(at("/v1/agents")).bearer_auth(&b);
            let forged = forged.header("Lastword-Workspace", "team-b").header("Lastword-Node", "guessed");
            assert_eq!(forged.send().await.unwrap().status(), 403);
            let unnamed = lastword_client::plain_http().unwrap().get(at("/v1/agents")).bearer_auth(&b);
            assert_eq!(unnamed.header("Lastword-Workspace", "team-b").send().await.unwrap().status(), 401);
        }
        let (_, made) = call(&format!("{}/w/team-b/v1/agents", world.nodes[0].url), None, &b, Some(&agent)).await;
        let kilo = made["token"].as_str().unwrap();
        assert_eq!(call(&format!("{}/w/team-b/v1/inbox", world.nodes[1].url), None, kilo, None).await.0, 204);
        assert_eq!(call(&format!("{}/v1/inbox", world.nodes[1].url), None, kilo, None).await.0, 401);
        let (_, list) = call(&format!("{}/v1/agents", world.nodes[2].url), None, &main, None).await;
        assert!(!list.to_string().contains("kilo"), "{list}");
    });
}

/// Room for everything but the grant, whose cap is what is raced for.
const RACE: &str = "[limits]\ngrant_messages_max = 60\ntask_requests_max = 64\npair_messages_max = 1000\n\
                    sender_messages_max = 1000\nfan_out_targets_max = 100\n";

#[test]
fn six_agents_race_a_grants_cap_through_all_nodes_and_get_exactly_the_cap() {
    let Some(world) = World::start_with("a raced cap", RACE, &[]) else { return };
    let human = world.operator();
    let accepted = runtime().block_on(race(&world, &human));
    // A request reserves its answer, so it takes two.
    assert_eq!(2 * accepted, 60);
}

/// Has six agents of one grant send requests through all nodes until each is refused; returns how many requests the grant
/// paid for.
async fn race(world: &World, human: &str) -> usize {
    let url = |n: usize, path: &str| format!("{}{path}", world.nodes[n % 3].url);
    let mut tokens = Vec::new();
    for name in (0..6).map(|n| format!("racer-{n}")).chain((0..12).map(|n| format!("sink-{n}"))) {
        let (status, made) = call(&url(tokens.len(), "/v1/agents"), None, human, Some(&json!({ "name": name }))).await;
        assert_eq!(status, 201, "{made}");
        tokens.push(made["token"].as_str().unwrap().to_owned());
    }
    let request = |to: &str, reference: &str| json!({ "type": "request", "to": to, "ref": reference, "body": "go" });
    let (status, sent) = call(&url(0, "/v1/messages"), None, human, Some(&request("racer-0", "RACE-0"))).await;
    assert_eq!(status, 201, "{sent}");
    let take = async |n: usize| {
        let (status, taken) = call(&url(n, "/v1/inbox?wait=5s"), None, &tokens[n], None).await;
        assert_eq!(status, 200, "{taken}");
    };
    take(0).await;
    for n in 1..6 {
        let body = request(&format!("racer-{n}"), &format!("RACE-{n}"));
        let (status, sent) = call(&url(n, "/v1/messages"), None, &tokens[0], Some(&body)).await;
        assert_eq!(status, 201, "{sent}");
        take(n).await;
    }
    let mut racing = JoinSet::new();
    for n in 0..6 {
        let (token, nodes): (_, Vec<_>) = (tokens[n].clone(), (0..3).map(|node| url(node, "/v1/messages")).collect());
        racing.spawn(async move {
            let mut accepted = 0;
            for round in 0.. {
                let body = json!({
                    "type": "request", "to": format!("sink-{}", (n + round) % 12), "ref": format!("RUN-{n}-{round}"), "body": "x",
                });
                let (status, fault) = call(&nodes[(n + round) % 3], None, &token, Some(&body)).await;
                if status != 201 {
                    // The first refusal latches the grant.
                    assert!(fault["code"] == "grant_messages" || fault["code"] == "latched", "{fault}");
                    break;
                }
                accepted += 1;
            }
            accepted
        });
    }
    // The operator's request and those to the other five.
    6 + racing.join_all().await.into_iter().sum::<usize>()
}

#[test]
fn a_long_wait_through_a_follower_is_as_long_as_it_says() {
    let Some(world) = World::start("long waits") else { return };
    let agents = world.enrol();
    let leader = world.led("main");
    runtime().block_on(async {
        let mut waits = JoinSet::new();
        for node in &world.nodes {
            let (url, token) = (format!("{}/v1/inbox?wait=22s", node.url), agents[0].clone());
            waits.spawn(async move { call(&url, None, &token, None).await.0 });
        }
        assert_eq!(waits.join_all().await, [204; 3], "led by {leader}");
    });
}

#[test]
fn a_node_that_cannot_follow_a_workspace_is_not_handed_it() {
    let Some(mut world) = World::start("an unfit node") else { return };
    let token = world.operator();
    let first = world.led("main");
    world.nodes[first].terminate();
    // As of a server of its own: no node takes it for a mirror.
    std::fs::write(world.nodes[first].data("main").join("lastword.head"), [7; 40]).unwrap();
    world.nodes[first].start();
    let other = &world.nodes[(first + 1) % 3];
    until("the broken node says so", || world.nodes[first].said().contains("doesn't follow the workspace"));
    let url = format!("{}/v1/agents", other.url);
    for _ in 0..20 {
        assert_eq!(runtime().block_on(call(&url, None, &token, None)).0, 200);
        assert_ne!(world.leader("main"), Some(first), "it can't lead");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

#[test]
fn a_log_moves_in_and_out_with_its_tokens_and_its_chain() {
    let Some(world) = World::start("moves") else { return };
    let server = crate::program::Server::start();
    server.agent("kilo");
    let kilo = std::fs::read_to_string(server.path().join("kilo.token")).unwrap();
    let sent = server.operator(&["--json", "send", "kilo", "do it", "--ref", "T-1"]).json();
    let (_, dir) = server.terminate();
    let data = dir.path().join(".lastword");
    let moved = world.run(&["--data", data.to_str().unwrap(), "cluster", "move-in", "team"]);
    assert_eq!(moved.code, 0, "{moved:?}");
    world.led("team");
    runtime().block_on(async {
        let inbox = format!("{}/w/team/v1/inbox?wait=5s", world.nodes[1].url);
        let (status, taken) = call(&inbox, None, kilo.trim(), None).await;
        assert_eq!((status, &taken["message"]["id"]), (200, &sent["id"]), "{taken} {sent}");
    });
    let out = world.dir.path().join("out");
    let moved = world.run(&["--json", "cluster", "move-out", "team", "--to", out.to_str().unwrap()]);
    assert_eq!(moved.code, 0, "{moved:?}");
    let verified = world.run(&["--data", out.to_str().unwrap(), "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert_eq!(std::fs::read(out.join("secret.key")).unwrap(), std::fs::read(data.join("secret.key")).unwrap());
}

#[test]
fn nodes_pass_calls_on_over_tls_and_know_each_others_certificates() {
    let Some(world) = World::start_with("nodes over TLS", "", &["--tls", "auto"]) else { return };
    let token = world.nodes[0].data("main").join("operator.token");
    for node in &world.nodes {
        let (url, pin) = (node.url.replace("http://", "https://"), node.data("tls.pin"));
        let args = ["--url", &url, "--tls-pin", pin.to_str().unwrap(), "--token-file", token.to_str().unwrap()];
        let listed = world.run(&[&args[..], &["--json", "agent", "list"]].concat());
        assert_eq!(listed.code, 0, "{listed:?}");
        assert_eq!(listed.json()["items"][0]["name"], "operator");
    }
}

#[test]
fn a_node_serves_only_durable_nats_servers() {
    let Some(world) = World::start("durability") else { return };
    let (servers, monitors) = (world.servers(), world.nats.monitors.join(","));
    let check = || world.run(&["--json", "doctor", "--cluster", &servers, "--nats-monitor", &monitors]);
    // A server may be reading the last messages.
    until("every copy is up to date", || check().code == 0);
    let checked = check().json();
    assert_eq!(
        (checked["servers"].as_array().unwrap().len(), &checked["cluster"]["workspaces"][0]["copies_current"]),
        (3, &json!(3))
    );
    world.nodes[2].signal("STOP");
    let checked = world.run(&["doctor", "--cluster", &servers, "--nats-monitor", &monitors]);
    world.nodes[2].signal("CONT");
    assert!(checked.code == 1 && checked.stdout.contains("✗ the node c isn't heard of"), "{checked:?}");
    let unknown = world.run(&["serve", "--cluster", &servers, "--node", "d", "--nats-monitor", "http://127.0.0.1:9"]);
    assert!(unknown.code == 3 && unknown.stderr.contains("--not-durable"), "{unknown:?}");
    world.settled("main");
    let status = world.run(&["--json", "cluster", "status"]).json();
    assert_eq!(status["nodes"].as_array().unwrap().iter().filter(|node| node["alive"] == true).count(), 3, "{status}");
    assert_eq!(status["workspaces"][0]["workspace"], "main");
    let epoch = world.lease("main");
    let twice = world.run(&["serve", "--cluster", &servers, "--node", "a", "--listen", "127.0.0.1:0", "--not-durable"]);
    assert!(twice.code == 3 && twice.stderr.contains("--node"), "{twice:?}");
    assert!(world.lease("main") == epoch && !world.nodes[0].said().contains("another program is this node"));
}

#[test]
fn the_workspaces_of_a_dead_node_are_spread_over_the_others() {
    let Some(mut world) = World::start("many workspaces") else { return };
    let names: Vec<String> = (0..times(6)).map(|n| format!("team-{n}")).collect();
    for name in &names {
        assert_eq!(world.run(&["cluster", "add", name]).code, 0);
    }
    let teams: Vec<(String, String)> = names.iter().map(|name| (name.clone(), world.token(name))).collect();
    let leaders: Vec<usize> = names.iter().map(|name| world.led(name)).collect();
    let shares = [0, 1, 2].map(|node| leaders.iter().filter(|leader| **leader == node).count());
    if measures() {
        println!("{} workspaces, idle: {}", names.len(), world.idle());
    }
    let dead = (0..3).max_by_key(|node| shares[*node]).unwrap();
    world.nodes[dead].kill();
    let killed = crate::traffic::now();
    let other = world.nodes[(dead + 1) % 3].url.clone();
    let outages = runtime().block_on(async {
        let mut back = JoinSet::new();
        for ((name, token), _) in teams.into_iter().zip(&leaders).filter(|(_, leader)| **leader == dead) {
            let url = format!("{other}/w/{name}/v1/agents");
            back.spawn(async move {
                while call(&url, None, &token, None).await.0 != 200 {}
                killed.elapsed()
            });
        }
        back.join_all().await
    });
    let longest = outages.iter().max().copied().unwrap_or_default();
    println!(
        "{} workspaces, {shares:?} on the nodes; {} lost their leader, the last was back after {longest:?}",
        names.len(),
        outages.len()
    );
    assert!(!outages.is_empty() && (!measures() || longest <= std::time::Duration::from_secs(6)), "{longest:?}");
}

#[test]
fn what_leaves_the_log_leaves_the_stream_and_every_node_and_a_new_node_begins_without_it() {
    // What is remembered for retries, and answers that a human may still look at, stay in the log: here for a second.
    let config = "[limits]\nretention_ms = 1000\ndelivery_age_ms = 1000\n";
    let Some(mut world) = World::start_with("an archive", config, &[]) else { return };
    let agents = world.enrol();
    let traffic = Traffic::start(&world, &agents);
    let operator = world.nodes[0].data("main").join("operator.token");
    let first = |world: &World, node: usize| {
        let store = lastword_store::DataDir::at(&world.nodes[node].data("main"));
        store.open_reader().map_or(0, |log| log.first().unwrap().0)
    };
    let nats = world.nats.connect();
    let purged = || {
        runtime().block_on(async {
            let mut stream = nats.jetstream().get_stream("LASTWORD_main").await.unwrap();
            let state = &stream.info().await.unwrap().state;
            state.last_sequence - state.messages
        })
    };
    let mut end = 0;
    // Twice at least: the stream keeps what the older of two starts needs.
    until("messages left the stream", || {
        traffic.goes_on(100);
        let args = ["--url", &world.nodes[1].url, "--token-file", operator.to_str().unwrap()];
        let moved = world.run(&[&args[..], &["--json", "archive", "now", "--above", "1", "--yes"]].concat());
        assert_eq!(moved.code, 0, "{moved:?}");
        let moved = moved.json();
        end = moved["segments"].as_array().and_then(|all| all.last()?["last"].as_u64()).unwrap_or(end);
        purged() > 0
    });
    for node in 0..3 {
        until("a node lets go of what left", || first(&world, node) == end + 1);
    }
    // A disk is lost, and then the node that leads.
    let leader = world.led("main");
    let fresh = (leader + 1) % 3;
    world.nodes[fresh].kill();
    std::fs::remove_dir_all(world.nodes[fresh].data("main")).unwrap();
    world.nodes[fresh].start();
    until("the new node has the rest of the log", || first(&world, fresh) == end + 1);
    traffic.goes_on(50);
    world.nodes[leader].kill();
    traffic.goes_on(50);
    world.nodes[leader].start();
    until("the node listens", || {
        std::net::TcpStream::connect(world.nodes[leader].url.trim_start_matches("http://")).is_ok()
    });
    // Calls to a node that isn't there fail.
    let (known, _) = traffic.end();
    check(&mut world, &known);
}

#[test]
fn a_workspace_has_limits_of_its_own_and_is_removed() {
    let Some(world) = World::start("a workspace's own limits") else { return };
    let file = |name: &str, text: &str| {
        let path = world.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let own = file("own.toml", "[limits]\ndepth_max = 3\n");
    assert_eq!(world.run(&["cluster", "configure", "team-b", &own]).code, 3, "it doesn't exist yet");
    assert_eq!(world.run(&["cluster", "add", "team-b"]).code, 0);
    let notify = file("notify.toml", "[[notify]]\nname = \"x\"\ncommand = [\"true\"]\n");
    let refused = world.run(&["cluster", "configure", "team-b", &notify]);
    assert!(refused.code == 2 && refused.stderr.contains("notify is set in the nodes' lastword.toml"), "{refused:?}");
    let token = world.token("team-b");
    let at = |node: usize, path: &str| format!("{}{path}", world.nodes[node].url);
    let depth = |workspace: &str, token: &str| {
        let url = at(1, &format!("/w/{workspace}/v1/limits"));
        let limits = runtime().block_on(call(&url, None, token, None)).1;
        limits["items"].as_array()?.iter().find(|limit| limit["name"] == "depth_max")?["value"].as_u64()
    };
    let wait_for = |wanted| until("the limits are in force", || depth("team-b", &token) == Some(wanted));
    wait_for(5);
    world.run(&["cluster", "configure", "team-b", &own]).ok();
    wait_for(3);
    assert_eq!(depth("main", &world.operator()), Some(5));
    world.run(&["cluster", "configure", "team-b", "--default"]).ok();
    wait_for(5);
    let answers = |status: u16| {
        for node in 0..3 {
            let url = at(node, "/w/team-b/v1/agents");
            until("all nodes agree", || runtime().block_on(call(&url, None, &token, None)).0 == status);
        }
    };
    world.run(&["cluster", "remove", "team-b", "--yes"]).ok();
    answers(401);
    world.run(&["cluster", "add", "team-b"]).ok();
    answers(200);
    world.run(&["cluster", "remove", "team-b", "--with-log", "--yes"]).ok();
    answers(401);
    assert!(!world.run(&["cluster", "status"]).ok().contains("team-b"));
    world.run(&["cluster", "add", "team-b"]).ok();
    answers(401);
}

#[test]
fn a_stranger_learns_of_no_name_whether_there_is_a_workspace_of_it() {
    let config = "auth_failures_max = 1000\n";
    let Some(world) = World::start_with("names of workspaces", config, &[]) else { return };
    assert_eq!(world.run(&["cluster", "add", "team-b"]).code, 0);
    world.led("team-b");
    let main = world.operator();
    let node = &world.nodes[1];
    let port = node.url.rsplit(':').next().unwrap();
    let answered = |method: &str, path: &str, (name, by_host): (&str, bool), token: Option<&str>| {
        let url = if by_host { format!("{}{path}", node.url) } else { format!("{}/w/{name}{path}", node.url) };
        let request = lastword_client::plain_http().unwrap().request(method.parse().unwrap(), url);
        let request = if by_host { request.header("Host", format!("{name}.localhost:{port}")) } else { request };
        let request = request.header("Cookie", "lastword_session=x").body("");
        let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
        runtime().block_on(async {
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            (status, answer.headers().get("content-type").cloned(), answer.text().await.unwrap().replace(name, "NAME"))
        })
    };
    for (method, path) in [
        ("GET", "/v1/agents"),
        ("POST", "/v1/messages"),
        ("GET", "/v1/nothing"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
        ("GET", "/sign-in"),
        ("GET", "/"),
        ("POST", "/mcp"),
        ("GET", "/.well-known/nothing"),
    ] {
        for by_host in [false, true] {
            for token in [None, Some("lw_guessed"), Some(main.as_str())] {
                let [there, nowhere] = ["team-b", "team-x"].map(|name| answered(method, path, (name, by_host), token));
                assert_eq!((there.0, &there.1), (nowhere.0, &nowhere.1), "{method} {path} {there:?} {nowhere:?}");
            }
        }
    }
}

#[test]
fn without_a_token_a_node_names_no_workspace_and_no_other_node() {
    let Some(world) = World::start("names") else { return };
    assert_eq!(world.run(&["cluster", "add", "team-b"]).code, 0);
    world.led("team-b");
    let token = world.token("team-b");
    runtime().block_on(async {
        let mut redirected = 0;
        for node in &world.nodes {
            let get = |path: &str| lastword_client::plain_http().unwrap().get(format!("{}{path}", node.url));
            let own = std::fs::read_to_string(node.data("metrics.token")).unwrap();
            for (request, sees) in [
                (get("/cluster/metrics"), false),
                (get("/cluster/metrics").bearer_auth(&token), false),
                (get("/cluster/metrics").bearer_auth(own.trim()), true),
            ] {
                let text = request.send().await.unwrap().text().await.unwrap();
                assert!(text.contains("lastword_node_renewal_age_seconds "), "{text}");
                assert_eq!((text.contains("team-b"), text.contains("node=")), (sees, sees), "{text}");
            }
            let asked = |token: Option<&str>| {
                let request = get("/w/team-b/v1/agents").header("Lastword-Redirect", "1");
                token.into_iter().fold(request, |request, token| request.bearer_auth(token)).send()
            };
            for unknown in [None, Some("lw_guessed")] {
                let refused = asked(unknown).await.unwrap();
                assert_eq!((refused.status().as_u16(), refused.headers().get("location")), (401, None), "{unknown:?}");
                let said = refused.text().await.unwrap();
                assert!(
                    world.nodes.iter().all(|node| !said.contains(node.url.trim_start_matches("http://"))),
                    "{said}"
                );
            }
            // The client follows it, without the token.
            let told = asked(Some(&token)).await.unwrap();
            redirected += usize::from(!told.url().as_str().starts_with(&node.url));
        }
        assert_eq!(redirected, world.nodes.len() - 1, "all but the leader name it to those who may know");
    });
}
