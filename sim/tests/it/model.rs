//! The real core as a model for a model checker (`stateright`): agents that differ only by name, the acts of the
//! explorer, tiny limits, and each promise of the witness as a property.
//!
//! A state is a world and the number of acts that led to it. Two worlds are one state if the core and the witness hold
//! the same, up to the numbers of messages, tasks, turns and grants, of which only the order counts. Agents are
//! interchangeable: a state's representative is the world in which they act in the order of their names.
//!
//! `cargo test -p lastword-sim --release --test it model:: -- --ignored --nocapture` runs the campaign.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use lastword_proto::Core;
use lastword_proto::limits::Limits;
use lastword_proto::rules::Off;
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
}

impl Act {
    fn all(agents: usize) -> impl Iterator<Item = Self> {
        let common = (0..agents).map(Self::Ask).chain((1..COMMON).map(Self::Common));
        let own = (0..agents).flat_map(|who| (0..EACH).map(move |verb| Self::Own(who, verb)));
        let others = move |who| (0..agents).filter(move |to| *to != who);
        let requests = (0..agents).flat_map(move |who| {
            others(who).flat_map(move |to| [false, true].map(|fresh| Self::Request(who, to, fresh)))
        });
        common.chain(own).chain(requests)
    }

    fn agents(self) -> impl Iterator<Item = usize> {
        let (first, second) = match self {
            Self::Common(_) => (None, None),
            Self::Ask(agent) | Self::Own(agent, _) => (Some(agent), None),
            Self::Request(who, to, _) => (Some(who), Some(to)),
        };
        first.into_iter().chain(second)
    }

    /// Returns the act with its agents renamed.
    fn renamed(self, names: &[usize]) -> Self {
        match self {
            Self::Common(letter) => Self::Common(letter),
            Self::Ask(agent) => Self::Ask(names[agent]),
            Self::Own(agent, verb) => Self::Own(names[agent], verb),
            Self::Request(who, to, fresh) => Self::Request(names[who], names[to], fresh),
        }
    }

    fn play(self, world: &mut World) {
        let each = EACH + 2 * (world.agents().len() - 1);
        let letter = match self {
            Self::Ask(agent) => return ask(world, agent),
            Self::Common(letter) => letter,
            Self::Own(who, verb) => COMMON + who * each + verb,
            Self::Request(who, to, fresh) => {
                COMMON + who * each + EACH + 2 * (to - usize::from(to > who)) + usize::from(fresh)
            }
        };
        play(world, Pace::Hours, letter);
    }
}

/// A state of the model. Cloning it is cheap.
#[derive(Clone, Debug)]
struct Node(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Arc<World>,
    world: World,
    acts: Vec<Act>,
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

impl Node {
    fn start(world: World) -> Self {
        let start = Arc::new(world.clone());
        let key = key(&world, 0);
        Self(Arc::new(Inner { start, world, acts: Vec::new(), key }))
    }

    /// Returns the state after an act; `None` if the act changes nothing.
    fn after(&self, act: Act) -> Option<Self> {
        let mut world = self.0.world.clone();
        let facts = world.log().len();
        act.play(&mut world);
        world.audit(false);
        if world.log().len() == facts && world.broken().is_empty() {
            return None;
        }
        let mut acts = self.0.acts.clone();
        acts.push(act);
        let key = key(&world, acts.len());
        Some(Self(Arc::new(Inner { start: Arc::clone(&self.0.start), world, acts, key })))
    }

    fn broke(&self, promise: &str) -> bool {
        self.0.world.broken().iter().any(|broken| broken.promise == promise)
    }

    /// Returns the state in which the agents first act in the order of their names.
    fn representative(&self) -> Self {
        let agents = self.0.world.agents().len();
        let mut order: Vec<usize> = Vec::new();
        for agent in self.0.acts.iter().flat_map(|act| act.agents()).chain(0..agents) {
            if !order.contains(&agent) {
                order.push(agent);
            }
        }
        let mut names = vec![0; agents];
        order.iter().enumerate().for_each(|(name, agent)| names[*agent] = name);
        if names.iter().enumerate().all(|(agent, name)| agent == *name) {
            return self.clone();
        }
        let start = Self::start((*self.0.start).clone());
        self.0.acts.iter().fold(start, |node, act| node.after(act.renamed(&names)).expect("each act changed something"))
    }
}

/// The words before the numbers of which only the order counts.
const RANKED: [&str; 6] = ["msg-", "task-", "turn-", "grant-", "inc-", "req-"];

/// Hashes what the core and the witness hold, with each minted number replaced by its rank.
fn key(world: &World, depth: usize) -> u64 {
    let mut text = String::with_capacity(16 * 1024);
    write!(text, "{depth} {:?} {:?} {:?}", world.now(), world.core().state(), world.witness()).unwrap();
    let bytes = text.as_bytes();
    // Each number: its place in the text, its kind, its value.
    let mut found: Vec<(usize, usize, usize, u64)> = Vec::with_capacity(256);
    for dash in (0..bytes.len()).filter(|at| bytes[*at] == b'-') {
        let Some(kind) = RANKED.iter().position(|word| text[..=dash].ends_with(word)) else { continue };
        let digits = bytes[dash + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if let Ok(value) = text[dash + 1..dash + 1 + digits].parse() {
            found.push((dash + 1, digits, kind, value));
        }
    }
    let ranks: BTreeSet<(usize, u64)> = found.iter().map(|(.., kind, value)| (*kind, *value)).collect();
    let ranks: Vec<(usize, u64)> = ranks.into_iter().collect();
    let mut hash = DefaultHasher::new();
    let mut from = 0;
    for (at, digits, kind, value) in found {
        hash.write(&bytes[from..at]);
        hash.write_usize(ranks.binary_search(&(kind, value)).unwrap_or_default());
        from = at + digits;
    }
    hash.write(&bytes[from..]);
    hash.finish()
}

/// The model: a core, limits, agents, and the most acts of a history.
struct Team {
    core: Core,
    limits: Limits,
    agents: u8,
    acts_max: usize,
}

macro_rules! promises {
    ($($promise:literal,)*) => {
        /// The promises that are properties of their own.
        const PROMISES: &[&str] = &[$($promise),*];

        fn properties() -> Vec<Property<Team>> {
            vec![
                $(Property::always($promise, |_, node: &Node| !node.broke($promise)),)*
                Property::always("every other promise is kept", |_, node: &Node| {
                    node.0.world.broken().iter().all(|broken| PROMISES.contains(&broken.promise))
                }),
            ]
        }
    };
}

promises! {
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
}

impl Model for Team {
    type State = Node;
    type Action = Act;

    fn init_states(&self) -> Vec<Node> {
        vec![Node::start(World::over(self.core.clone(), Witness::default(), &self.limits, self.agents))]
    }

    fn actions(&self, node: &Node, actions: &mut Vec<Act>) {
        if node.0.acts.len() < self.acts_max {
            actions.extend(Act::all(self.agents.into()));
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

/// Checks all histories of `acts_max` acts; returns the number of states and the properties with a counterexample.
fn check(team: Team, states_max: usize) -> (usize, Vec<(&'static str, Vec<Act>)>) {
    let checker = team
        .checker()
        .symmetry_fn(Node::representative)
        .finish_when(HasDiscoveries::AnyFailures)
        .target_state_count(states_max)
        .spawn_dfs()
        .join();
    let found = checker.discoveries();
    let found = found.into_iter().map(|(name, path)| (name, path.into_actions())).collect();
    println!(
        "{} states, {} distinct, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    (checker.unique_state_count(), found)
}

fn team(agents: u8, acts_max: usize) -> Team {
    Team { core: Core::default(), limits: tiny(), agents, acts_max }
}

#[test]
fn the_model_of_the_core_keeps_every_promise() {
    for (agents, acts_max) in [(2, 4), (3, 3)] {
        let (distinct, found) = check(team(agents, acts_max), usize::MAX);
        assert_eq!(found, []);
        assert!(distinct > 400, "{distinct}");
    }
}

/// Ten million distinct states; `LASTWORD_MODEL_STATES` sets another number.
#[test]
#[ignore = "a campaign of an hour"]
fn ten_million_states_of_the_model_keep_every_promise() {
    let states = std::env::var_os("LASTWORD_MODEL_STATES").and_then(|text| text.to_str()?.parse().ok());
    let states = states.unwrap_or(10_000_000);
    // `target_state_count` counts each visit, so the histories are long enough, and the checker stops by itself.
    let (distinct, found) = check(team(3, 9), states * 4);
    assert_eq!(found, []);
    assert!(distinct >= states, "{distinct}");
}

#[test]
fn renamed_agents_are_the_same_state_and_others_are_not() {
    let start = team(3, 9).init_states().remove(0);
    let walk = |acts: &[Act]| acts.iter().fold(start.clone(), |node, act| node.after(*act).unwrap());
    let path = |a, b| [Act::Ask(a), Act::Own(a, 0), Act::Request(a, b, true), Act::Own(b, 0), Act::Own(b, 1)];
    let first = walk(&path(0, 1));
    for (a, b) in [(0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let other = walk(&path(a, b));
        assert!(other != first, "before it is renamed");
        assert!(other.representative() == first, "{a} {b}");
    }
    assert!(first.representative() == first);
    assert!(walk(&[Act::Ask(0), Act::Own(0, 0)]) != walk(&[Act::Ask(0), Act::Ask(0)]));
}

/// Each limit is so low that a history of a few acts reaches it where its rule is missing.
#[test]
fn a_core_without_a_rule_has_a_counterexample() {
    let (wide, mut missed) = (Limits::default(), Vec::new());
    for (rule, promise, limits) in [
        ("depth_cap", "depth <= cap", Limits { depth_max: 0, ..wide.clone() }),
        ("hop_cap", "hops <= cap", Limits { hops_max: 0, ..wide.clone() }),
        ("grant_messages", "messages per grant <= bound", Limits { grant_messages_max: 2, ..wide.clone() }),
        ("grant_agents", "agents per grant <= bound", Limits { grant_agents_max: 1, ..wide }),
    ] {
        let whole = Team { core: Core::default(), limits: limits.clone(), agents: 2, acts_max: 4 };
        let lacking = Team { core: Core::without(Off::named(rule).unwrap()), limits, agents: 2, acts_max: 4 };
        let shortest = |team: Team| {
            let sought = HasDiscoveries::AnyOf([promise].into());
            let checker = team.checker().finish_when(sought).target_max_depth(5).spawn_bfs().join();
            checker.discovery(promise).map(|path| path.into_actions())
        };
        let Some(acts) = shortest(lacking) else {
            missed.push(rule);
            continue;
        };
        println!("without {rule}: {acts:?}");
        // The same acts break nothing where the rule holds.
        let start = whole.init_states().remove(0);
        let kept = acts.iter().fold(start, |node, act| node.after(*act).unwrap_or(node));
        assert!(!kept.broke(promise), "{rule}");
    }
    assert_eq!(missed, Vec::<&str>::new(), "without these rules every history keeps its promise");
}

#[test]
fn each_named_promise_is_one_of_the_witness() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/src/witness");
    let files = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let source: String = files.collect::<String>() + include_str!("../../src/witness.rs");
    for promise in PROMISES {
        assert!(source.contains(&format!("\"{promise}\"")), "{promise}");
    }
}
