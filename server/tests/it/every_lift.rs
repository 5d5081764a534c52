//! Every refusal that a human can lift, in each state of the work: the step that it names lifts it (H6).

use std::collections::BTreeMap;

use lastword_facts::Limits;
use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::machine::Machine;
use crate::world::{Answer, World, id};

const MINUTE: u64 = 60_000;
const AGENTS: [&str; 4] = ["kilo", "hive", "lima", "mike"];

/// A line is a case: `CODE | LIMITS | STEPS | REFUSED | LIFT`. The steps lead to the state; the refused step has to get
/// the code with that command, and to succeed once a human has made the call that belongs to it. A step that begins with
/// `!` is refused, too.
const TABLE: &str = r#"
# In a turn of work that is open.
depth_cap | depth_max=1 | $ANSWERED | kilo asks hive T-1 | grant T-1 --rounds 2
depth_cap | depth_max=1 | $ANSWERED | kilo asks hive,lima T-1 | grant T-1 --rounds 2
task_requests | task_requests_max=1 | $ANSWERED | kilo asks hive T-1 | grant T-1 --messages 8 --requests 4 --turns 8
task_requests | task_requests_max=1 | $BELOW | hive asks lima,mike - | grant T-1/1 --messages 8 --requests 4 --turns 8
grant_messages | grant_messages_max=4 | $ANSWERED | kilo asks hive T-1 | grant T-1 --messages 20
grant_messages | grant_messages_max=4 | $BELOW | hive asks lima,mike - | grant T-1/1 --messages 20
latched | grant_messages_max=4 | $ANSWERED; !kilo asks hive T-1 | kilo asks hive T-1 | resume T-1
grant_turns | grant_turns_max=1 | $TAKEN | kilo asks hive - | grant T-1 --turns 20
grant_agents | grant_agents_max=1 | $TAKEN | kilo asks hive - | grant T-1 --agents 1
grant_agents | grant_agents_max=1 | $TAKEN | kilo asks hive,lima,mike - | grant T-1 --agents 3
latched | grant_age_ms=60000 | $TAKEN; time 2 | kilo asks hive - | resume T-1
latched | grant_tokens_max=100 | $TAKEN; kilo spends 500 | kilo asks hive - | resume T-1
latched | grant_cost_microusd_max=2000000 | $TAKEN; kilo costs 7 | kilo asks hive - | resume T-1
budget | grant_tokens_max=100 | $TAKEN; kilo spends 500 | kilo holds rm | grant T-1 --tokens 50000
budget | grant_cost_microusd_max=2000000 | $TAKEN; kilo costs 7 | kilo holds rm | grant T-1 --cost 2.0
budget | agent_day_tokens_max=100 | $TAKEN; kilo spends 500 | kilo holds rm | grant --agent kilo --tokens 50000
budget | agent_day_tokens_max=100 | $TAKEN; kilo spends 500 | kilo asks hive - | grant --agent kilo --tokens 50000
budget | agent_day_cost_microusd_max=2000000 | $TAKEN; kilo costs 7 | kilo asks hive - | grant --agent kilo --cost 2.0
turns_soft | turns_soft_max=3 | $ANSWERED | kilo asks hive T-1 | resume T-1
turns_soft | turns_soft_max=3 | $TAKEN; kilo asks hive,lima -; lima takes; lima finishes; kilo takes | kilo asks hive,lima - | resume T-1
turns_hard | turns_soft_max=3 turns_hard_max=4 | $ANSWERED | kilo asks hive T-1 | resume T-1
latched | turns_soft_max=3 turns_hard_max=4 | $ANSWERED; !kilo asks hive T-1 | kilo asks lima - | resume T-1
latched | turns_soft_max=2 turns_hard_max=3 | $TAKEN; kilo asks hive -; hive takes; kilo tells hive T-1; !kilo tells hive T-1; !kilo tells hive T-1 | hive asks lima - | resume T-1/1
no_progress | depth_max=39 no_progress | $STUCK | kilo asks hive - | resume T-1/1
root_allowance | root_messages_per_day_max=2 | kilo asks hive R-1; hive takes | hive asks lima - | ask hive "…"
unattended | unattended_ms=60000 | kilo asks hive R-1; hive takes; time 2 | hive asks lima - | resume --workspace
turns_soft | turns_soft_max=2 | operator opens den; $TAKEN; kilo posts den | kilo posts den | resume --room den
turns_hard | turns_soft_max=2 turns_hard_max=3 | operator opens den; $TAKEN; kilo posts den; !kilo posts den | kilo posts den | resume --room den
paused | | $TAKEN; operator pauses agent kilo | kilo asks hive - | resume --agent kilo
paused | | $TAKEN; operator pauses agent kilo | kilo escalates | resume --agent kilo
paused | | $TAKEN; operator pauses T-1 | kilo asks hive - | resume T-1
paused | | $BELOW; operator pauses T-1 | hive asks lima - | resume T-1
paused | | $TAKEN; operator pauses workspace | kilo asks hive - | resume --workspace
paused | | $TAKEN; operator pauses workspace | kilo escalates | resume --workspace
paused | | operator asks kilo hive; kilo takes; operator pauses hive | kilo asks lima - | resume hive
paused | | operator asks kilo workspace; kilo takes; operator pauses conversation workspace | kilo asks lima - | resume workspace
stopped | | $TAKEN; operator stops agent hive | kilo asks hive - | resume --agent hive

# Outside every turn, in work that is open.
depth_cap | depth_max=1 | $OUTSIDE; hive takes; hive finishes; kilo takes; kilo asks lima -; kilo finishes | kilo asks hive T-1/1 | grant T-1/1 --rounds 2
grant_messages | grant_messages_max=4 | $OUTSIDE; hive takes; hive finishes | kilo asks hive T-1/1 | grant T-1 --messages 20
latched | grant_messages_max=4 | $OUTSIDE; hive takes; hive finishes; !kilo asks hive T-1/1 | kilo asks hive T-1/1 | resume T-1
latched | grant_messages_max=4 | $TAKEN; kilo asks hive T-9; kilo finishes; hive takes; hive finishes; !kilo asks hive T-9 | kilo asks hive - | resume T-1
latched | grant_messages_max=4 | $TAKEN; kilo asks hive -; !kilo asks lima - | hive answers | resume T-1/1
latched | grant_tokens_max=100 | $TAKEN; kilo asks hive -; kilo spends 500 | hive answers | resume T-1/1
paused | | $OUTSIDE; operator pauses T-1 | hive answers | resume T-1
paused | | $OUTSIDE; operator pauses agent hive | hive answers | resume --agent hive
budget | agent_day_tokens_max=100 | operator asks hive T-2; hive takes; hive spends 500; operator asks hive T-3; hive finishes | hive answers | grant --agent hive --tokens 50000
stopped | | kilo asks hive R-1; operator stops R-1 | kilo tells hive R-1 | resume R-1
stopped | | operator stops agent kilo | kilo asks hive R-1 | resume --agent kilo
stopped | | operator stops workspace | kilo asks hive R-1 | resume --workspace
stopped | | operator stops agent hive | operator asks hive T-1 | resume --agent hive
stopped | | $TAKEN; operator stops T-1 | operator asks kilo T-1 | resume T-1
stopped | | $TAKEN; operator stops workspace | operator asks kilo T-2 | resume --workspace

# Outside every turn, in work that has settled, or that is the agent's own.
depth_cap | depth_max=1 | $SETTLED | kilo asks hive R-1 | ask kilo "…" --ref R-1
depth_cap | depth_max=1 | $SETTLED; operator asks lima R-1 | kilo asks hive R-1 | grant R-1 --rounds 2
turns_soft | turns_soft_max=3 | $SETTLED | kilo asks hive R-1 | resume R-1
turns_hard | turns_soft_max=3 turns_hard_max=4 | $SETTLED | kilo asks hive R-1 | resume R-1
turns_soft | turns_soft_max=2 | operator opens den; kilo posts den | kilo posts den | resume --room den
root_allowance | roots_per_hour_max=1 | kilo asks hive R-1 | kilo asks hive R-2 | agent set kilo --roots-per-hour 2
root_allowance | roots_per_hour_max=0 | | kilo asks hive R-1 | agent set kilo --roots-per-hour 1
root_allowance | root_messages_per_day_max=2 | $SETTLED | kilo asks hive R-2 | ask kilo "…"
root_allowance | root_messages_per_day_max=2 | $SETTLED | kilo asks hive R-1 | ask kilo "…" --ref R-1
unattended | unattended_ms=60000 | time 2 | kilo asks hive R-1 | resume --workspace
budget | agent_day_tokens_max=100 | $TAKEN; kilo spends 500; kilo finishes | kilo asks hive R-1 | grant --agent kilo --tokens 50000
budget | agent_day_tokens_max=100 | $TAKEN; kilo spends 500; kilo finishes | kilo tells hive R-1 | grant --agent kilo --tokens 50000
"#;

/// The beginnings that several cases share.
const BEGINNINGS: [(&str, &str); 6] = [
    ("$TAKEN", "operator asks kilo T-1; kilo takes"),
    ("$BELOW", "operator asks kilo T-1; kilo takes; kilo asks hive -; kilo finishes; hive takes"),
    ("$SETTLED", "kilo asks hive R-1; hive takes; hive finishes; kilo takes; kilo finishes"),
    ("$OUTSIDE", "operator asks kilo T-1; kilo takes; kilo asks hive -; kilo finishes"),
    (
        "$ANSWERED",
        "operator asks kilo T-1; kilo takes; kilo asks hive T-1; kilo finishes; hive takes; hive finishes; kilo takes",
    ),
    (
        "$STUCK",
        "operator asks kilo T-1; kilo takes; kilo asks hive -; hive takes; hive finishes; kilo takes; kilo asks hive -; \
         hive takes; hive finishes; kilo takes; kilo asks hive -; hive takes; hive finishes; kilo takes",
    ),
];

/// A world in which one case is played.
pub(crate) struct Play {
    machine: Machine,
    world: World,
    /// The last delivery that each agent took.
    taken: BTreeMap<String, Value>,
}

impl Play {
    pub(crate) async fn within(settings: &str) -> Self {
        let mut limits = Limits::default();
        for setting in settings.split_whitespace() {
            match setting.split_once('=') {
                Some((name, value)) => assert!(limits.set(name, value.parse().unwrap()), "{name}"),
                None => assert!(limits.observed.enforce(setting), "{setting}"),
            }
        }
        let machine = Machine::new();
        let world = machine.world(&AGENTS, limits).await;
        Self { machine, world, taken: BTreeMap::new() }
    }

    /// Does the steps that lead to a case; the error says which one got another reply than it should.
    pub(crate) async fn steps(&mut self, steps: &str) -> Result<(), String> {
        let steps = BEGINNINGS.iter().fold(steps.to_owned(), |steps, (name, steps_of)| steps.replace(name, steps_of));
        for step in steps.split("; ").filter(|step| !step.is_empty()) {
            let (step, fails) = step.strip_prefix('!').map_or((step, false), |step| (step, true));
            let answer = self.step(step).await;
            let nothing = |answer: &Answer| step.ends_with("takes") && answer.status.as_u16() == 204;
            if let Some(answer) = answer.filter(|answer| answer.status.is_success() == fails || nothing(answer)) {
                return Err(format!("{step}: {} {}", answer.status, answer.body));
            }
        }
        Ok(())
    }

    /// Makes a call: `WHO METHOD PATH`, then `HEADER=VALUE` if there is one, and the body.
    async fn call(&self, step: &str) -> Answer {
        let mut words = step.splitn(4, ' ');
        let [who, method, path] = [(); 3].map(|()| words.next().unwrap());
        let rest = words.next().unwrap_or_default();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut call = self.world.request(who, method, &format!("/v1/{path}"));
        let header = rest.strip_prefix("Lastword-Turn=").map(|rest| rest.split_once(' ').unwrap());
        if let Some((turn, _)) = header {
            let taken = self.taken.get(who).filter(|_| turn == "TURN");
            call = call.header("Lastword-Turn", taken.map_or(turn, |taken| id(&taken["turn"], "token")));
        }
        let body = header.map_or(rest, |(_, body)| body).to_owned();
        if !body.is_empty() {
            call = call.header("content-type", if body.starts_with('{') { "application/json" } else { "text/plain" });
        }
        Answer::of(call.body(body).send().await.unwrap()).await
    }

    /// Does one step; `None` if it can't be refused.
    pub(crate) async fn step(&mut self, step: &str) -> Option<Answer> {
        let words: Vec<&str> = step.split_whitespace().collect();
        let world = &self.world;
        let message = |kind: &str, to: &str, reference: &str| {
            let to: Vec<&str> = to.split(',').collect();
            let mut message = json!({ "type": kind, "to": to, "body": "please run the tests again" });
            if reference != "-" {
                message["ref"] = reference.into();
            }
            message
        };
        let turn = |who: &str| id(&self.taken[who]["turn"], "id").to_owned();
        Some(match words[..] {
            ["time", minutes] => {
                self.machine.run(minutes.parse::<u64>().unwrap() * MINUTE);
                return None;
            }
            [who, "takes"] => {
                let taken = world.get(who, "/v1/inbox?wait=5s&turns=true").await;
                if taken.status.as_u16() == 200 {
                    self.taken.insert(who.to_owned(), taken.body.clone());
                }
                taken
            }
            [who, "finishes"] => world.finish(who, &self.taken[who].clone(), "done").await,
            [who, "asks", to, reference] => world.post(who, "/v1/messages", message("request", to, reference)).await,
            [who, "tells", to, reference] => world.post(who, "/v1/messages", message("info", to, reference)).await,
            [who, "posts", room] => {
                world.post(who, &format!("/v1/rooms/{room}/messages"), json!({"body": "news"})).await
            }
            [who, "opens", room] => world.post(who, "/v1/rooms", json!({"name": room, "members": AGENTS})).await,
            [who, "spends", tokens] => {
                let tokens: u64 = tokens.parse().unwrap();
                let path = format!("/v1/turns/{}/progress", turn(who));
                world.post(who, &path, json!({"usage": {"input_tokens": tokens}})).await
            }
            [who, "costs", dollars] => {
                let dollars: f64 = dollars.parse().unwrap();
                let path = format!("/v1/turns/{}/progress", turn(who));
                world.post(who, &path, json!({"usage": {"cost_usd": dollars}})).await
            }
            [who, "answers"] => {
                let asked = world.get("operator", &format!("/v1/messages?to={who}&type=request")).await.is(200);
                let newest = asked["items"].as_array().unwrap().iter().max_by_key(|one| one["seq"].as_u64()).unwrap();
                let (to, request) = (id(newest, "from"), id(newest, "request_id"));
                let answer = json!({"type": "response", "to": to, "request_id": request, "body": "done"});
                world.post(who, "/v1/messages", answer).await
            }
            [who, "holds", tool] => world.post(who, "/v1/approvals", json!({"tool": tool, "arguments": {}})).await,
            [who, "escalates"] => world.post(who, "/v1/escalations", json!({"message": "well?"})).await,
            [who, control @ ("pauses" | "stops"), ref on @ ..] => {
                let on = match on {
                    ["workspace"] => "workspace".to_owned(),
                    ["agent", name] => format!("agents/{name}"),
                    ["conversation", reference] => format!("conversations/{reference}"),
                    [reference] => format!("conversations/{}", reference.replace('/', "%2F")),
                    _ => panic!("{step}"),
                };
                world.post(who, &format!("/v1/{on}/{}", control.trim_end_matches('s')), json!({})).await
            }
            [_, "GET" | "POST" | "PATCH" | "DELETE", ..] => self.call(step).await,
            _ => panic!("what is {step:?}?"),
        })
    }

    /// Makes the call of a lift as a human.
    async fn lift(&mut self, lift: &Value) {
        let call = id(lift, "call").replace('…', "go on");
        let mut parts = call.splitn(3, ' ');
        let (method, path) = (parts.next().unwrap(), parts.next().unwrap());
        let body: Value = parts.next().map_or_else(|| json!({}), |body| serde_json::from_str(body).unwrap());
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let answer = self.world.request("operator", method, path).json(&body).send().await.unwrap();
        let answer = Answer::of(answer).await;
        assert!(answer.status.is_success(), "{call}: {}", answer.body);
        // A human who gives the task itself has done so once the agent has it.
        if let Some(agent) = body["to"].as_str().filter(|_| path == "/v1/messages") {
            while self.taken.get(agent).is_none_or(|taken| taken["message"]["id"] != answer.body["id"]) {
                if let Some(open) = self.taken.get(agent) {
                    self.world.finish(agent, open, "done").await;
                }
                let taken = self.world.take(agent).await;
                self.taken.insert(agent.to_owned(), taken);
            }
        }
    }

    /// Has the refused agent ask, and chooses what the broker offers for the limit; `false` if it offers nothing.
    async fn lift_by_question(&mut self, agent: &str) -> bool {
        let asked = self.world.post(agent, "/v1/escalations", json!({"message": "May I go on?"})).await;
        if asked.body["lifts"].is_null() {
            return false;
        }
        let path = format!("/v1/escalations/{}/answer", id(&asked.body, "id"));
        self.world.post("operator", &path, json!({"lift": "lift-1"})).await.is(200);
        true
    }

    /// Checks that a refusal on record is explained with the same step, and shown with it in the console.
    async fn told_alike(&self, problem: &Value) -> Result<(), String> {
        let Some(record) = problem["record"].as_str() else { return Ok(()) };
        let explained = self.world.get("operator", &format!("/v1/explanations/{record}")).await;
        let step = &explained.body["refused"]["problem"]["lift"];
        if explained.status.is_success() && *step != problem["lift"] {
            return Err(format!("is explained otherwise: {}", explained.body));
        }
        let browser = Browser::signed_in(&self.world).await;
        let page = browser.get(&format!("/messages/{}", record.replace("refused", "msg"))).await.is(200);
        let text = id(&problem["lift"], "text");
        if page.text.contains(text) { Ok(()) } else { Err(format!("the console doesn't say {text:?}")) }
    }

    /// Plays a case; the error says what differs. `true` if the step is chosen in answer to a question, where the broker
    /// offers it.
    async fn case(line: &str, by_question: bool) -> Result<bool, String> {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [code, limits, steps, refused, lift] = fields[..] else { panic!("{line}: five fields") };
        let mut play = Self::within(limits).await;
        play.steps(steps).await?;
        let problem = play.step(refused).await.unwrap().body;
        if problem["code"] != code {
            return Err(format!("is refused otherwise: {problem}"));
        }
        let cli = problem["lift"]["cli"].as_str().unwrap_or_default();
        if cli != format!("lastword {lift}") {
            return Err(format!("names another step: {}", problem));
        }
        if by_question {
            if !play.lift_by_question(refused.split(' ').next().unwrap()).await {
                return Ok(false);
            }
        } else {
            // To sign in is an act of a human already.
            if code != "unattended" {
                play.told_alike(&problem).await?;
            }
            play.lift(&problem["lift"]).await;
        }
        let again = play.step(refused).await.unwrap();
        if again.status.is_success() { Ok(true) } else { Err(format!("{lift} doesn't lift it: {}", again.body)) }
    }
}

/// Plays every second case from this one on, so that two tests share the time.
async fn each_step_lifts(first: usize) {
    let (mut wrong, mut offered) = (Vec::new(), 0);
    let cases = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).skip(first).step_by(2);
    for line in cases {
        for by_question in [false, true] {
            match Play::case(line, by_question).await {
                Ok(lifted) => offered += usize::from(lifted && by_question),
                Err(reason) => wrong.push(format!("{line}\n    {by_question}: {reason}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(offered >= 8, "questions offer a step, too: {offered}");
}

#[tokio::test]
async fn each_refusal_is_lifted_by_the_step_that_it_names() {
    each_step_lifts(0).await;
}

#[tokio::test]
async fn each_other_refusal_is_lifted_by_the_step_that_it_names() {
    each_step_lifts(1).await;
}
