//! A server, a Discord with some bots and humans, and the bridge between them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::program::{Server, lastword};
use crate::running::Running;
use crate::world::{Id, TestDiscord};

/// The file for the bridge's errors and log.
const LOG: &str = "bridge.log";
/// Most looks before a test fails; no test needs nearly as many.
const LOOKS_MAX: usize = 20_000;

/// The whole setup. The bridge posts as `kilo` and `lima`; `hive` is a foreign bot; `ann` is listed as a human, `bob`
/// isn't.
pub(crate) struct TestGuild {
    pub(crate) world: TestDiscord,
    pub(crate) server: Server,
    pub(crate) channel: Id,
    /// Another channel of the bridge.
    pub(crate) other: Id,
    pub(crate) broker: Id,
    pub(crate) kilo: Id,
    pub(crate) lima: Id,
    pub(crate) hive: Id,
    pub(crate) ann: Id,
    pub(crate) bob: Id,
    bridge: Option<Running>,
}

impl TestGuild {
    /// Starts everything, the bridge included.
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// Like [`TestGuild::start`], with more lines in `[discord]`; `CHANNEL` is replaced by the channel's id.
    pub(crate) fn with(more: &str) -> Self {
        let mut town = Self::quiet(more);
        town.bridge();
        town
    }

    /// Starts everything except the bridge.
    pub(crate) fn quiet(more: &str) -> Self {
        Self::limited("", more)
    }

    /// Like [`TestGuild::quiet`], with these limits of the server.
    pub(crate) fn limited(limits: &str, more: &str) -> Self {
        let world = TestDiscord::start();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("lastword.toml"), format!("[limits]\n{limits}")).unwrap();
        let server = Server::start_in(dir);
        let [broker, kilo, lima, hive] = ["broker", "kilo", "lima", "hive"].map(|name| world.bot(name));
        let [ann, bob] = ["ann", "bob"].map(|name| world.human(name));
        let [channel, other] = ["den", "attic"].map(|name| world.channel(name));
        for name in ["kilo", "lima"] {
            server.agent(name);
        }
        for name in ["broker", "kilo", "lima"] {
            let path = server.path().join(format!("discord-{name}.token"));
            fs::write(&path, format!("token-{name}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let ours = |name: &str| format!("[[discord.bot]]\nagent = \"{name}\"\ntoken_file = \"discord-{name}.token\"\n");
        let (api, gateway) = (world.http(), world.gateway());
        let text = format!(
            "[discord]\napi = \"{api}\"\ngateway = \"{gateway}\"\nchannels = [{channel}, {other}]\nhumans = [{ann}]\n{}\n\
             broker = {{ token_file = \"discord-broker.token\" }}\n{}{}[[discord.bot]]\nagent = \"hive\"\nuser = {hive}\n",
            more.replace("CHANNEL", &channel.to_string()),
            ours("kilo"),
            ours("lima"),
        );
        fs::write(server.path().join("lastword.toml"), text).unwrap();
        Self { world, server, channel, other, broker, kilo, lima, hive, ann, bob, bridge: None }
    }

    /// Starts the bridge and waits until it receives posts.
    pub(crate) fn bridge(&mut self) -> &mut Running {
        self.bridge_with(&[])
    }

    /// Like [`TestGuild::bridge`], with these environment variables.
    pub(crate) fn bridge_with(&mut self, variables: &[(&str, &str)]) -> &mut Running {
        let running = self.launched(variables).ready();
        self.world.wait_connected(self.broker);
        self.bridge.insert(running)
    }

    /// Starts the bridge without waiting.
    pub(crate) fn spawn(&mut self) {
        self.bridge = Some(self.launched(&[]));
    }

    fn launched(&self, variables: &[(&str, &str)]) -> Running {
        let mut command = lastword(self.server.path());
        command.args(["--token-file", ".lastword/operator.token", "--json", "discord"]);
        // A file, because an unread pipe would fill up and block the bridge.
        let log = fs::File::options().create(true).append(true).open(self.server.path().join(LOG)).unwrap();
        Running::of(command.envs(variables.iter().copied()).stderr(log))
    }

    /// Kills the bridge without a chance to clean up.
    pub(crate) fn kill(&mut self) {
        if let Some(bridge) = self.bridge.take() {
            bridge.signal("-KILL");
        }
    }

    /// Waits until the bridge ends; returns its whole output.
    pub(crate) fn ended(&mut self) -> String {
        let (seen, _) = self.bridge.take().unwrap().rest();
        format!("{seen:?} {}", fs::read_to_string(self.server.path().join(LOG)).unwrap())
    }

    /// Adds lines to the end of the configuration, before the bridge starts.
    pub(crate) fn configure(&self, more: &str) {
        let path = self.server.path().join("lastword.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}{more}")).unwrap();
    }

    /// Waits for an event of this kind in the workspace.
    pub(crate) fn until(&self, kind: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut tries = 0;
        loop {
            if let Some(event) = self.events(kind).into_iter().find(&wanted) {
                return event;
            }
            // Each look is a call to the server, so no pause is needed.
            tries += 1;
            assert!(tries < LOOKS_MAX, "no such {kind}: {:#?}\n{:#?}", self.events(kind), self.world.spoken());
        }
    }

    /// The operator posts in a channel's room, outside of Discord.
    pub(crate) fn says(&self, channel: Id, body: &str) {
        let server = self.server.first_line["listening"].as_str().unwrap();
        let url = format!("{server}/v1/rooms/discord:{channel}/messages");
        let token = fs::read_to_string(self.server.path().join(".lastword/operator.token")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let posted = runtime.block_on(async {
            let body = serde_json::json!({ "body": body });
            lastword_client::plain_http()
                .unwrap()
                .post(url)
                .bearer_auth(token.trim())
                .json(&body)
                .send()
                .await
                .unwrap()
                .status()
        });
        assert_eq!(posted, 201);
    }

    /// An agent sends a message with its header, under this key, without the bridge.
    pub(crate) fn sends(&self, agent: &str, text: &str, key: &str) {
        let server = self.server.first_line["listening"].as_str().unwrap();
        let token = self.server.operator(&["agent", "token", agent]).ok();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let request =
                lastword_client::plain_http().unwrap().post(format!("{server}/v1/messages")).bearer_auth(token.trim());
            let request = request.header("content-type", "text/plain").header("idempotency-key", key);
            request.body(text.to_owned()).send().await.unwrap()
        });
    }

    /// Runs an agent that answers each request with this command's output.
    pub(crate) fn runs(&self, agent: &str, command: &[&str]) -> Running {
        Running::start(&self.server, agent, &[&["--"], command].concat())
    }

    /// Returns all events of this kind in the workspace.
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        let listed = self.server.operator(&["--json", "tail", "-n", "10000"]).ok();
        let events = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["type"] == kind).collect()
    }
}
