//! The real core as a model for a model checker (`stateright`): agents that differ only by name, the acts of the
//! explorer, tiny limits, and each promise of the witness as a property.
//!
//! A state is a world and the number of acts that led to it. Two worlds are one state if the bytes of the core's state
//! and of the witness are the same. Agents are interchangeable, so only histories in which they first act in the order
//! of their names are played: every other history is one of these with the agents renamed.
//!
//! `cargo test -p lastword-sim --release --test it model:: -- --ignored --nocapture` runs the campaign.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;
use std::sync::Arc;

use lastword_core::input::Finish;
use lastword_core::rules::Off;
use lastword_core::state::{Asker, State};
use lastword_core::{Core, Input};
use lastword_facts::MessageType;
use lastword_facts::envelope::{Address, Draft};
use lastword_facts::fact::{Fact, Recipient, TurnCharged, TurnFinished};
use lastword_facts::ids::{AgentId, TaskId, TurnId};
use lastword_facts::limits::Limits;
use lastword_facts::names::{AgentName, RequestId};
use lastword_sim::explorer::{COMMON, EACH, ask, play};
use lastword_sim::{Pace, Witness, World};
use stateright::{Checker, HasDiscoveries, Model, Property};

/// An act. Agents are named by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Act {
    /// The human asks an agent.
    Ask(usize),
    /// Another act of the human, or of the clock.
    Common(usize),
    /// An agent takes, finishes or asks a human.
    Own(usize, usize),
    /// An agent asks another one, in the conversation or in a new one.
    Request(usize, usize, bool),
    /// An agent asks another one or itself, with an idempotency key that is always the same.
    Keyed(usize, usize),
    /// An agent finishes the first turn of all, whether or not it is over.
    Late(usize),
}

impl Act {
    /// Returns all acts of these agents.
    fn all(agents: usize) -> impl Iterator<Item = Self> {
        let common = (0..agents).map(Self::Ask).chain((1..COMMON).map(Self::Common));
        let own = (0..agents).flat_map(|who| (0..EACH).map(move |verb| Self::Own(who, verb)));
        let pairs = move || (0..agents).flat_map(move |who| (0..agents).map(move |to| (who, to)));
        let others = pairs().filter(|(who, to)| who != to);
        let requests = others.flat_map(|(who, to)| [false, true].map(|fresh| Self::Request(who, to, fresh)));
        let keyed = pairs().map(|(who, to)| Self::Keyed(who, to));
        common.chain(own).chain(requests).chain(keyed).chain((0..agents).map(Self::Late))
    }

    /// Returns whether it is an act of the explorer; rogues and retries do the others, too.
    const fn is_usual(self) -> bool {
        !matches!(self, Self::Keyed(..) | Self::Late(_))
    }

    /// Returns whether it asks an agent or takes a delivery.
    const fn asks(self) -> bool {
        matches!(self, Self::Ask(_) | Self::Request(..) | Self::Own(_, 0))
    }

    /// Returns whether it asks an agent for new work or takes a delivery.
    const fn delegates(self) -> bool {
        matches!(self, Self::Request(_, _, true) | Self::Own(_, 0))
    }

    /// Returns whether it starts work or lets it start.
    const fn starts(self) -> bool {
        matches!(self, Self::Ask(_) | Self::Common(4) | Self::Request(_, _, true) | Self::Keyed(..))
    }

    /// Returns whether it takes a delivery, repeats an act, or is a deadline that makes an act late.
    const fn retries(self) -> bool {
        matches!(self, Self::Ask(_) | Self::Own(_, 0) | Self::Common(1) | Self::Keyed(..) | Self::Late(_))
    }

    const fn is_any(self) -> bool {
        let _ = self;
        true
    }

    fn agents(self) -> impl Iterator<Item = usize> {
        let (first, second) = match self {
            Self::Common(_) => (None, None),
            Self::Ask(agent) | Self::Own(agent, _) | Self::Late(agent) => (Some(agent), None),
            Self::Request(who, to, _) | Self::Keyed(who, to) => (Some(who), Some(to)),
        };
        first.into_iter().chain(second)
    }

    /// Returns whether no agent acts for the first time before one that precedes it, where `acted` agents had acted.
    fn is_in_order(self, acted: usize) -> bool {
        let after = self.agents().try_fold(acted, |acted, agent| (agent <= acted).then_some(acted.max(agent + 1)));
        after.is_some()
    }

    /// Returns the act with its agents renamed.
    fn renamed(self, names: &[usize]) -> Self {
        match self {
            Self::Common(letter) => Self::Common(letter),
            Self::Ask(agent) => Self::Ask(names[agent]),
            Self::Own(agent, verb) => Self::Own(names[agent], verb),
            Self::Request(who, to, fresh) => Self::Request(names[who], names[to], fresh),
            Self::Keyed(who, to) => Self::Keyed(names[who], names[to]),
            Self::Late(who) => Self::Late(names[who]),
        }
    }

    fn play(self, world: &mut World) {
        let each = EACH + 2 * (world.agents().len() - 1);
        let by = |world: &World, who: usize| world.agent(world.agents()[who]).expect("no act removes an agent");
        let letter = match self {
            Self::Ask(agent) => return ask(world, agent),
            Self::Common(letter) => letter,
            Self::Own(who, verb) => COMMON + who * each + verb,
            Self::Request(who, to, fresh) => {
                COMMON + who * each + EACH + 2 * (to - usize::from(to > who)) + usize::from(fresh)
            }
            Self::Keyed(who, to) => {
                let to =
                    AgentName::new(world.core().state().name_of(world.agents()[to])).expect("the name of an agent");
                let draft = Draft::new(MessageType::Request, Address::Name(to), "please");
                let draft = Draft { request_id: RequestId::new("K-1").ok(), ..draft };
                world.give(Input::Send(by(world, who), Box::new(draft)));
                return;
            }
            Self::Late(who) => {
                let finish = Finish { body: "late".into(), ..Finish::default() };
                world.give(Input::Finish(by(world, who), Some(TurnId(1)), Box::new(finish)));
                return;
            }
        };
        play(world, Pace::Hours, letter);
    }
}

/// Room for the bytes of a state.
const BYTES_MAX: usize = 64 * 1024;

/// A state of the model. Cloning it is cheap.
#[derive(Clone, Debug)]
struct Node(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    world: World,
    /// The number of acts that led here.
    acts: usize,
    /// The number of agents that acted or were asked: the first ones.
    acted: usize,
    /// The agents that a request with the key was admitted from, each as a bit.
    keyed: u8,
    /// The promise that the last act broke and that the witness doesn't recount.
    broke: Option<&'static str>,
    key: u64,
}

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

thread_local! {
    /// A copy of the world of the state with this key. An act that changes nothing leaves it for the next act.
    static COPY: RefCell<Option<(u64, World)>> = const { RefCell::new(None) };
}

impl Node {
    fn start(mut world: World) -> Self {
        world.drop_log();
        Self::new(Inner { world, acts: 0, acted: 0, keyed: 0, broke: None, key: 0 })
    }

    fn new(mut inner: Inner) -> Self {
        let Inner { world, acts, acted, keyed, broke, .. } = &inner;
        let held = (world.now(), world.core().state(), world.witness());
        // No `Vec`: rustc would take what writes to one from the store, which is compiled without optimisations, and half of the
        // model's time would be spent there.
        let mut buffer = [0; BYTES_MAX];
        let bytes = postcard::to_slice(&held, &mut buffer).expect("the state has room");
        let mut hash = DefaultHasher::new();
        (bytes, acts, acted, keyed, broke).hash(&mut hash);
        inner.key = hash.finish();
        Self(Arc::new(inner))
    }

    /// Returns the state after an act; `None` if the act changes nothing.
    fn after(&self, act: Act) -> Option<Self> {
        let copy = COPY.take().filter(|(key, _)| *key == self.0.key);
        let mut world = copy.map_or_else(|| self.0.world.clone(), |(_, world)| world);
        act.play(&mut world);
        world.audit(false);
        if world.log().is_empty() && world.broken().is_empty() {
            // Only facts change a core, and a copy at another time is another world.
            if world.now() == self.0.world.now() {
                COPY.set(Some((self.0.key, world)));
            }
            return None;
        }
        let (broke, keyed) = self.recount(act, &world);
        world.drop_log();
        let acted = act.agents().map(|agent| agent + 1).fold(self.0.acted, usize::max);
        Some(Self::new(Inner { world, acts: self.0.acts + 1, acted, keyed, broke, key: 0 }))
    }

    /// Checks what the witness doesn't recount: keys, the turn that a finish names, and who may ask whom.
    fn recount(&self, act: Act, world: &World) -> (Option<&'static str>, u8) {
        // A key is forgotten after a time, so only a retry at once is checked.
        let (mut broke, mut keyed) = (None, if world.now() == self.0.world.now() { self.0.keyed } else { 0 });
        for entry in world.log() {
            if let (
                Act::Late(_),
                Fact::TurnFinished(TurnFinished { turn, .. }) | Fact::TurnCharged(TurnCharged { turn, .. }),
            ) = (act, &entry.fact)
            {
                broke = broke.or((*turn != TurnId(1)).then_some(LATE));
            }
            let Fact::Accepted { message } = &entry.fact else { continue };
            if message.kind != MessageType::Request {
                continue;
            }
            if let (Act::Keyed(who, _), Some(_)) = (act, &message.key) {
                broke = broke.or((keyed & 1 << who != 0).then_some(KEYED));
                keyed |= 1 << who;
            }
            let Recipient::One(to) = message.to else { continue };
            if to == message.from {
                broke = broke.or(Some(ITSELF));
            } else if message.sender_task.is_some_and(|task| above(world.core().state(), task).contains(&to)) {
                broke = broke.or(Some(UPWARDS));
            }
        }
        (broke, keyed)
    }

    fn broke(&self, promise: &str) -> bool {
        self.0.broke == Some(promise) || self.0.world.broken().iter().any(|broken| broken.promise == promise)
    }
}

/// The model: a core, limits, agents, and the most acts of a history.
#[derive(Clone)]
struct Team {
    core: Core,
    limits: Limits,
    agents: u8,
    acts_max: usize,
    /// The acts to choose from.
    acts: fn(Act) -> bool,
}

/// Returns the agents that caused a task, nearest first.
fn above(state: &State, task: TaskId) -> Vec<AgentId> {
    let (mut agents, mut next) = (Vec::new(), Some(task));
    while let Some(Asker::Task { agent, task }) = next.and_then(|task| state.tasks.get(&task)).map(|task| task.asker) {
        agents.push(agent);
        next = Some(task);
    }
    agents
}

const KEYED: &str = "a retry with the same key asks nothing twice";
const LATE: &str = "a finish ends no other turn than the one that it names";
const ITSELF: &str = "no agent asks itself";
const UPWARDS: &str = "no agent asks one that caused its work";

macro_rules! promises {
    ([$($promise:literal,)*], [$($own:expr,)*]) => {
        /// The promises of the witness that are properties of their own.
        const PROMISES: &[&str] = &[$($promise),*];

        fn properties() -> Vec<Property<Team>> {
            vec![
                $(Property::always($promise, |_, node: &Node| !node.broke($promise)),)*
                $(Property::always($own, |_, node: &Node| !node.broke($own)),)*
                Property::always("every other promise is kept", |_, node: &Node| {
                    node.0.world.broken().iter().all(|broken| PROMISES.contains(&broken.promise))
                }),
            ]
        }
    };
}

promises! {
    [
    "depth <= cap",
    "depth is that of what was received, and one",
    "hops <= cap",
    "hops are the edges from the grant",
    "messages per grant <= bound",
    "turns per grant <= bound",
    "turns per grant <= what its structure allows",
    "agents per grant <= bound",
    "requests per task <= quota",
    "every waking message lowers phi",
    "nothing but a grant raises phi",
    "no request past the budget",
    "windows: per pair",
    "windows: per sender",
    "windows: fan-out",
    "roots an hour",
    "nothing is admitted where a human or a latch holds",
    "nothing is admitted past a threshold of agent messages",
    "no turn opens where a human or a latch holds",
    "at most one warning per crossing",
    "each agent message is counted once",
    "counters equal those recomputed",
    "a request ends exactly once",
    "a root ends exactly once",
    "a finish settles",
    "an answer goes to who asked",
    "an answer resumes exactly the task that asked",
    "each answer is delivered once",
    "a task has one turn at a time",
    "a turn that has ended does nothing",
    "a task that has ended sends nothing",
    "a grant closes once",
    "a grant is finished when none of its tasks is open",
    "questions of a task",
    "open escalations of an agent",
    "each escalation ends once",
    "an acked cursor never goes back",
    "time never runs backwards in the log",
    ],
    [KEYED, LATE, ITSELF, UPWARDS,]
}

impl Model for Team {
    type State = Node;
    type Action = Act;

    fn init_states(&self) -> Vec<Node> {
        vec![Node::start(World::over(self.core.clone(), Witness::default(), &self.limits, self.agents))]
    }

    fn actions(&self, node: &Node, actions: &mut Vec<Act>) {
        if node.0.acts < self.acts_max {
            let all = Act::all(self.agents.into()).filter(|act| (self.acts)(*act));
            actions.extend(all.filter(|act| act.is_in_order(node.0.acted)));
        }
    }

    fn next_state(&self, node: &Node, act: Act) -> Option<Node> {
        node.after(act)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }
}

/// Limits so small that short histories reach them.
fn tiny() -> Limits {
    Limits {
        depth_max: 2,
        hops_max: 2,
        task_requests_max: 2,
        grant_messages_max: 6,
        grant_turns_max: 6,
        grant_agents_max: 2,
        turns_soft_max: 3,
        turns_hard_max: 5,
        pair_messages_max: 3,
        sender_messages_max: 4,
        fan_out_targets_max: 2,
        task_questions_max: 1,
        runs_max: 2,
        ..Limits::default()
    }
}

/// Checks all histories of the team; returns the number of distinct states and the properties with a counterexample.
fn check(team: Team) -> (usize, Vec<(&'static str, Vec<Act>)>) {
    let (agents, acts_max) = (team.agents, team.acts_max);
    let checker = team.checker().finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let distinct = checker.unique_state_count();
    println!("{agents} agents, {acts_max} acts: {} states, {distinct} distinct", checker.state_count(),);
    (distinct, checker.discoveries().into_iter().map(|(name, path)| (name, path.into_actions())).collect())
}

fn team(agents: u8, acts_max: usize, acts: fn(Act) -> bool) -> Team {
    Team { core: Core::default(), limits: tiny(), agents, acts_max, acts }
}

#[test]
fn the_model_of_the_core_keeps_every_promise() {
    for (agents, acts_max, acts) in
        [(2, 5, Act::is_usual as fn(Act) -> bool), (3, 4, Act::is_usual), (2, 4, Act::is_any)]
    {
        let (distinct, found) = check(team(agents, acts_max, acts));
        assert_eq!(found, []);
        assert!(distinct > 4_000, "{distinct}");
    }
}

/// Histories of more acts for each team; `LASTWORD_MODEL_ACTS` adds to them.
#[test]
#[ignore = "a campaign of a quarter of an hour"]
fn longer_histories_of_the_model_keep_every_promise() {
    let more = std::env::var_os("LASTWORD_MODEL_ACTS").and_then(|text| text.to_str()?.parse().ok()).unwrap_or(0);
    let mut states = 0;
    for (agents, acts_max, acts) in [(2, 6, Act::is_any as fn(Act) -> bool), (2, 7, Act::is_usual), (3, 6, Act::is_any)]
    {
        let (distinct, found) = check(team(agents, acts_max + more, acts));
        assert_eq!(found, []);
        states += distinct;
    }
    println!("{states} distinct states");
}

/// A team of four: its worlds are none of those above.
#[test]
#[ignore = "a campaign of minutes"]
fn histories_of_four_agents_keep_every_promise() {
    let (distinct, found) = check(team(4, 5, Act::is_any));
    assert_eq!(found, []);
    println!("{distinct} distinct states");
}

#[test]
fn histories_of_renamed_agents_have_the_same_facts() {
    fn kinds(world: &World) -> Vec<(std::mem::Discriminant<Fact>, u64)> {
        world.log().iter().map(|entry| (discriminant(&entry.fact), entry.at.0)).collect()
    }
    fn walk(first: &World, renamed: &World, names: &[usize], left: usize) -> usize {
        if left == 0 {
            return 1;
        }
        let mut histories = 0;
        for act in Act::all(names.len()) {
            let (mut first, mut renamed) = (first.clone(), renamed.clone());
            let facts = first.log().len();
            act.play(&mut first);
            act.renamed(names).play(&mut renamed);
            assert!(kinds(&first) == kinds(&renamed), "{act:?}");
            if first.log().len() > facts {
                histories += walk(&first, &renamed, names, left - 1);
            }
        }
        histories
    }
    for names in [&[1, 0][..], &[1, 2, 0]] {
        let agents = u8::try_from(names.len()).unwrap();
        let world = World::new(&tiny(), agents);
        assert!(walk(&world, &world, names, 5 - names.len()) > 200);
    }
}

#[test]
fn other_histories_lead_to_other_states_and_the_order_of_first_acts_is_fixed() {
    let start = team(3, 9, Act::is_any).init_states().remove(0);
    let walk = |acts: &[Act]| acts.iter().fold(start.clone(), |node, act| node.after(*act).unwrap());
    assert!(walk(&[Act::Ask(0), Act::Own(0, 0)]) != walk(&[Act::Ask(0), Act::Ask(0)]));
    assert!(walk(&[Act::Ask(0), Act::Own(0, 0)]) == walk(&[Act::Ask(0), Act::Own(0, 0)]));
    let renamings = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let path = [Act::Ask(0), Act::Own(0, 0), Act::Request(0, 1, true), Act::Request(0, 2, false)];
    let in_order = renamings.iter().filter(|names| {
        let mut acted = 0;
        path.iter().map(|act| act.renamed(&names[..])).all(|act| {
            let fits = act.is_in_order(acted);
            acted = act.agents().map(|agent| agent + 1).fold(acted, usize::max);
            fits
        })
    });
    assert_eq!(in_order.count(), 1);
}

/// A rule or guard, the promise that a core without it breaks, limits so low that a few acts reach them, and the team:
/// its agents, its most acts, and the acts to choose from.
type Lacking = (&'static str, &'static str, Limits, (u8, usize, fn(Act) -> bool));

/// Returns the rules whose lack the model notices, each with the smallest team found for it.
fn lacking() -> Vec<Lacking> {
    const PAST: &str = "nothing is admitted past a threshold of agent messages";
    const DEPTH: &str = "depth is that of what was received, and one";
    let wide = Limits::default();
    let limited = |name: &str, value| {
        let mut limits = Limits::default();
        assert!(limits.set(name, value), "{name}");
        limits
    };
    let hard = Limits { turns_soft_max: 9, ..limited("turns_hard_max", 1) };
    vec![
        ("depth_cap", "depth <= cap", limited("depth_max", 0), (2, 3, Act::is_usual)),
        ("hop_cap", "hops <= cap", limited("hops_max", 0), (2, 3, Act::asks)),
        ("task_requests", "requests per task <= quota", limited("task_requests_max", 1), (2, 4, Act::asks)),
        ("grant_messages", "messages per grant <= bound", limited("grant_messages_max", 2), (2, 3, Act::asks)),
        ("grant_turns", "turns per grant <= bound", limited("grant_turns_max", 1), (2, 4, Act::asks)),
        ("grant_agents", "agents per grant <= bound", limited("grant_agents_max", 1), (2, 3, Act::asks)),
        ("turns_soft", PAST, limited("turns_soft_max", 1), (2, 4, Act::asks)),
        ("turns_hard", PAST, hard, (2, 4, Act::asks)),
        ("pair_rate", "windows: per pair", limited("pair_messages_max", 1), (2, 4, Act::asks)),
        ("sender_rate", "windows: per sender", limited("sender_messages_max", 1), (2, 4, Act::asks)),
        ("fan_out", "windows: fan-out", limited("fan_out_targets_max", 1), (3, 3, Act::delegates)),
        ("root_allowance", "roots an hour", limited("roots_per_hour_max", 1), (2, 4, Act::starts)),
        ("self_send", ITSELF, wide.clone(), (1, 3, Act::is_any)),
        ("passive_reply", UPWARDS, wide.clone(), (2, 3, Act::asks)),
        ("cycle", UPWARDS, wide.clone(), (3, 4, Act::delegates)),
        ("idempotency", KEYED, wide.clone(), (2, 4, Act::retries)),
        ("late_answers", LATE, wide.clone(), (1, 5, Act::retries)),
        ("answers_deepen", DEPTH, wide, (2, 3, Act::is_usual)),
        ("warned_once", "at most one warning per crossing", limited("turns_soft_max", 1), (2, 4, Act::starts)),
    ]
}

#[test]
fn a_core_without_a_rule_has_a_counterexample() {
    let mut missed = Vec::new();
    for (rule, promise, limits, (agents, acts_max, acts)) in lacking() {
        let whole = Team { core: Core::default(), limits, agents, acts_max, acts };
        let lacking = Team { core: Core::without(Off::named(rule).unwrap()), ..whole.clone() };
        let checker = lacking.clone().checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let Some(path) = checker.discovery(promise) else {
            missed.push(rule);
            continue;
        };
        let acts = path.into_actions();
        println!("without {rule}: {acts:?}");
        // The same acts break the promise again, and break nothing where the rule holds.
        assert!(breaks(&lacking, &acts, promise) && !breaks(&whole, &acts, promise), "{rule}");
    }
    assert_eq!(missed, Vec::<&str>::new(), "without these rules every history keeps its promise");
}

/// Plays one history; returns whether it breaks the promise.
fn breaks(team: &Team, acts: &[Act], promise: &str) -> bool {
    let mut node = team.init_states().remove(0);
    for act in acts {
        node = node.after(*act).unwrap_or(node);
    }
    node.broke(promise)
}

#[test]
fn each_named_promise_is_one_of_the_witness() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../witness/src");
    let files = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let source: String = files.collect::<String>() + include_str!("../../src/witness.rs");
    for promise in PROMISES {
        assert!(source.contains(&format!("\"{promise}\"")), "{promise}");
    }
}
