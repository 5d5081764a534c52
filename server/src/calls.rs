//! The calls that all edges share. Each takes the parsed parameters and returns the wire form of its result.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a call has one kind of reply; any other kind is reported as a bug"
)]

pub mod agents;
pub mod approvals;
pub(crate) mod archives;
pub mod audit;
pub(crate) mod canonical;
pub(crate) mod checkpoints;
pub mod claims;
pub mod clock;
pub(crate) mod config_edits;
pub mod control;
pub mod conversations;
pub(crate) mod deliveries;
pub mod epochs;
pub(crate) mod errands;
pub mod escalations;
pub mod exchanges;
pub mod explanations;
pub mod grants;
pub mod humans;
pub mod inbox;
pub mod incidents;
pub mod limits;
pub mod links;
pub mod messages;
pub(crate) mod notifications;
pub(crate) mod places;
pub mod policy;
pub mod read_model;
pub mod requests;
pub mod risk;
pub mod rooms;
pub mod schedules;
mod shell;
pub(crate) mod shown;
pub mod sign_in;
pub mod subjects;
pub mod taking;
pub mod tokens;
pub mod tree;
pub mod turns;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lastword_broker::archive::Archives;
use lastword_broker::checkpoint::LogSigner;
use lastword_broker::files::Files;
use lastword_broker::identity::{Bearer, ConsoleSession, Proof, Scopes, SignInCode, credential};
use lastword_broker::metrics::{Family, Gauges};
use lastword_broker::scrub::LastScrub;
use lastword_broker::{ClientId, Handle, Live, Unserved};
use lastword_core::{Principal, Reply};
use lastword_facts::envelope::nesting_above;
use lastword_facts::fact::Credential;
use lastword_facts::ids::{AgentId, TurnId};
use lastword_facts::names::NameError;
use lastword_facts::{Code, Refusal, Seq, Time};
use lastword_store::IndexReader;
use lastword_wire::{FieldError, LiftStep, RefusedAt, Scope, misnamed, rfc3339};
use tokio::sync::{Notify, mpsc, watch};

use self::errands::{Agenda, Errands};
use crate::attempts::Attempts;
use crate::base_path::BasePath;
use crate::console::ConsoleSettings;
use crate::error::ApiError;
use crate::origins::Origins;
use crate::passkeys::{PasskeyUse, Passkeys};
use crate::tls::Transport;
use crate::trace::Traces;
use crate::views::{Nodes, NotifiedDevices, NotifyChannels};

/// The longest wait of any call; longer waits are shortened to it.
pub const WAIT_MAX: Duration = Duration::from_mins(5);

/// The parts of a workspace that its calls work with.
pub struct Resources {
    /// The broker's handle.
    pub handle: Handle,
    /// The read model, for searches over the log.
    pub(crate) index: IndexReader,
    /// The position up to which the read model has indexed the log.
    pub(crate) indexed: watch::Receiver<Seq>,
    /// Rings when a call waits for the read model, so that it indexes without its usual pause.
    pub(crate) hurry: Arc<Notify>,
    /// Becomes `true` when the server shuts down; waiting calls then return.
    pub stopping: watch::Receiver<bool>,
    /// The hosts and origins that may call.
    pub origins: Arc<Origins>,
    /// How callers reach the server.
    pub transport: Transport,
    /// The path under which a reverse proxy serves it.
    pub(crate) path: BasePath,
    /// The agents whose own MCP client has a human in front of it, each with that human's name.
    pub(crate) seats: Arc<BTreeMap<String, String>>,
    /// How grants are traced.
    pub traces: Traces,
    /// What humans change in the configuration file.
    pub config: config_edits::ConfigEdits,
    /// The browsers that are notified; `None` where that is off.
    pub devices: Option<Arc<dyn NotifiedDevices>>,
    /// The passkeys of humans; `None` where none is asked for.
    pub passkeys: Option<Arc<Passkeys>>,
    /// The channels through which humans are notified.
    pub channels: Arc<dyn NotifyChannels>,
    /// Takes calls to the task that sends notifications, if there is one.
    pub(crate) notifier: OnceLock<mpsc::Sender<notifications::NotifyCall>>,
    /// Rings when a schedule was set, so that its first tick is planned.
    pub(crate) scheduled: Arc<Notify>,
    /// The held calls that were shown in full, by reader.
    pub shown: Arc<shown::ShownCalls>,
    /// What the last reading of the whole log found.
    pub(crate) scrub: LastScrub,
    /// The small files of the data directory.
    pub files: Files,
    /// What is known of claims beside the state.
    pub(crate) claims: claims::Claims,
    /// Signs checkpoints of the log, and what an edge states for the workspace.
    pub signer: Arc<LogSigner>,
    /// The code of the console's one-time link.
    pub sign_in: Arc<SignInCode>,
    /// The console as people reach it.
    pub console: ConsoleSettings,
    /// The provider by which humans sign in, if there is one.
    pub oidc: Option<Arc<sign_in::SignIn>>,
    /// The failed authentications of each address.
    pub(crate) attempts: Arc<Attempts>,
    /// The archive of the log.
    pub archives: Archives,
    /// The nodes that serve the workspace, in a cluster.
    pub nodes: Option<Arc<dyn Nodes>>,
    /// The sessions that may still have calls to answer. An orderly end waits for them.
    pub sessions: Arc<AtomicUsize>,
    /// What goes on beside the calls.
    pub errands: Arc<Errands>,
}

/// What a call works with. A clone is two pointers: each waiting call, stream and session has some.
#[derive(Clone)]
pub struct Context {
    resources: Arc<Resources>,
    /// The places of calls in the broker's queue, for calls that agents' sessions make.
    pub(crate) places: Option<Arc<places::Places>>,
}

impl Context {
    pub(crate) fn new(resources: Resources) -> Self {
        Self { resources: Arc::new(resources), places: None }
    }

    /// Returns the same for calls that have these places in the broker's queue.
    pub(crate) fn with(self, places: Arc<places::Places>) -> Self {
        Self { places: Some(places), ..self }
    }

    /// Returns what the workspace has to do next if nobody calls.
    ///
    /// # Errors
    /// The broker doesn't serve.
    pub async fn agenda(&self) -> Result<Agenda, Unserved> {
        let look = |live: &Live<'_>| {
            let ticks = live.state.schedules.values().map(|known| known.next_at);
            (live.now(), ticks.chain(live.next_deadline()).min())
        };
        let (now, next) = self.handle.query(look).await?;
        let next = next.into_iter().chain(self.errands.next()).min();
        Ok(Agenda { now, next, busy: self.errands.any() || self.handle.has_unread() })
    }

    /// Returns the server's metrics, as of now.
    #[must_use]
    pub fn metrics(&self) -> Vec<Family> {
        let disk = self.handle.disk();
        self.handle.metrics().families(Gauges {
            queue_depth: self.handle.queue_depth(),
            agents: self.handle.known(),
            disk_space: disk.space(),
            disk_free: disk.free(),
            clock_ms: self.handle.clock().difference_ms,
        })
    }
}

impl Deref for Context {
    type Target = Resources;

    fn deref(&self) -> &Resources {
        &self.resources
    }
}

/// The authenticated caller, and the turn in which it calls.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Who calls.
    pub principal: Principal,
    credential: Credential,
    /// When the signed token expires that authenticated it; `None` if a token of the log did.
    until: Option<Time>,
    /// What that token may do.
    scopes: Scopes,
    /// The hash of that signed token.
    signed: Option<Credential>,
    /// Whether the cookie of a session authenticated it, and whether a passkey confirmed the call.
    session: bool,
    confirmed: bool,
    pub(crate) turn: Option<TurnId>,
    /// The client that calls, if it has an id (F1).
    pub(crate) client: Option<ClientId>,
}

impl Caller {
    /// Authenticates a bearer token and the turn token sent with it.
    pub(crate) fn prove(handle: &Handle, token: &str, turn: Option<&str>) -> Result<Self, ApiError> {
        let shown = credential(token);
        let proof = handle.known_by(&shown);
        let caller = match (proof, if proof == Proof::Unknown { handle.bearer(token) } else { None }) {
            (_, Some(Bearer { principal, credential, until, scopes })) => {
                in_time(handle, until)?;
                Self {
                    principal,
                    credential,
                    until: Some(until),
                    scopes,
                    signed: Some(shown),
                    session: false,
                    confirmed: false,
                    turn: None,
                    client: None,
                }
            }
            (proof, None) => Self {
                principal: proven(proof)?,
                credential: shown,
                until: None,
                scopes: Scopes::ALL,
                signed: None,
                session: false,
                confirmed: false,
                turn: None,
                client: None,
            },
        };
        match turn {
            Some(turn) => caller.within(handle, turn),
            None => Ok(caller),
        }
    }

    /// Returns the human of a console session as a caller.
    pub const fn of(session: &ConsoleSession) -> Self {
        Self {
            principal: session.principal,
            credential: session.token,
            until: None,
            scopes: Scopes::ALL,
            signed: None,
            session: true,
            confirmed: false,
            turn: None,
            client: None,
        }
    }

    /// Returns this human with a call that a passkey confirmed.
    #[must_use]
    pub const fn confirmed(self) -> Self {
        Self { confirmed: true, ..self }
    }

    /// Refuses a session's call that gives somebody more rights, unless a passkey confirmed it where one is asked for.
    pub(crate) fn gives_rights(&self, ctx: &Context) -> Result<(), ApiError> {
        self.unless(ctx.console.passkey != PasskeyUse::Off && self.session)
    }

    /// Refuses a call that allows what an agent asked for, unless a passkey confirmed it where one is asked for.
    pub(crate) fn allows(&self, ctx: &Context) -> Result<(), ApiError> {
        let always = ctx.console.passkey == PasskeyUse::Always && self.principal.is_human();
        self.unless(always || (ctx.console.passkey == PasskeyUse::Console && self.session))
    }

    fn unless(&self, is_asked: bool) -> Result<(), ApiError> {
        if self.confirmed || !is_asked {
            return Ok(());
        }
        Err(ApiError::new(Code::Forbidden, "This workspace asks for a passkey here: decide in the console"))
    }

    /// Returns an agent as the holder of its current token, for work that goes on without a request of its own; `None` if
    /// it was removed.
    #[must_use]
    pub fn standing(handle: &Handle, agent: AgentId) -> Option<Self> {
        let (credential, principal) = handle.proof_of(agent)?;
        let (session, confirmed) = (false, false);
        let (until, signed, turn, client) = (None, None, None, None);
        Some(Self { principal, credential, until, scopes: Scopes::ALL, signed, session, confirmed, turn, client })
    }

    /// Returns the turn in which it calls, if it named one.
    #[must_use]
    pub const fn turn(&self) -> Option<TurnId> {
        self.turn
    }

    /// Returns this caller in the turn that the turn token names.
    pub fn within(self, handle: &Handle, turn: &str) -> Result<Self, ApiError> {
        let named = handle.signer().verify(turn, self.principal.agent());
        let turn = named.ok_or_else(|| {
            ApiError::new(Code::Forbidden, "the turn token names no turn of this agent")
                .hinted("Name the turn by `turn.token` of its delivery, or omit it if only one is open.")
        })?;
        Ok(self.in_turn(turn))
    }

    /// Returns this caller as a call of the client with this id.
    pub(crate) fn by(self, client: Option<&str>) -> Self {
        Self { client: client.filter(|id| !id.is_empty()).map(ClientId::of), ..self }
    }

    /// Returns this caller in one of its turns.
    pub(crate) const fn in_turn(self, turn: TurnId) -> Self {
        Self { turn: Some(turn), ..self }
    }

    /// Authenticates the caller again after a wait, in which its token may have been replaced or its owner removed.
    pub fn reauthenticate(&self, handle: &Handle) -> Result<(), ApiError> {
        self.until.map_or(Ok(()), |until| in_time(handle, until))?;
        let principal = match &self.signed {
            // It ends with its owner's current token, whose overlap is for that token alone.
            Some(shown) if !handle.signer().has_ended(shown) => {
                let current = handle.proof_of(self.principal.agent());
                current.filter(|(token, _)| *token == self.credential).map(|(_, principal)| principal)
            }
            Some(_) => None,
            None => Some(proven(handle.known_by(&self.credential))?),
        };
        let Some(principal) = principal else { return Err(Refusal::new(Code::Unauthenticated).into()) };
        if principal == self.principal { Ok(()) } else { Err(Refusal::new(Code::Unauthenticated).into()) }
    }

    /// Returns whether the token may do less than its owner.
    pub fn is_narrowed(&self) -> bool {
        self.scopes != Scopes::ALL
    }

    /// Refuses a token that was narrowed to other scopes. `None` is a call that every token may make.
    pub fn may(&self, scope: Option<Scope>) -> Result<(), ApiError> {
        match scope {
            Some(scope) if !self.scopes.has(scope) => {
                let has = self.scopes.list().iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", ");
                let text = format!("This token was narrowed to {has}: the call needs one with the scope {scope}");
                Err(ApiError::new(Code::Forbidden, text))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses a call of an agent.
    pub fn human(&self) -> Result<(), ApiError> {
        if self.principal.is_human() { Ok(()) } else { Err(ApiError::humans_only()) }
    }
}

/// Refuses a sign-in that is over.
fn in_time(handle: &Handle, until: Time) -> Result<(), ApiError> {
    if handle.now() < until {
        return Ok(());
    }
    let text = format!(
        "This token expired at {}: sign in again with `lastword sign-in`, or make a new one with `lastword token`",
        rfc3339(until)
    );
    Err(ApiError::new(Code::Unauthenticated, text))
}

/// Returns the principal that a token proves, or says why it proves none.
pub fn proven(proof: Proof) -> Result<Principal, ApiError> {
    match proof {
        Proof::Valid(principal) => Ok(principal),
        Proof::Expired(at) => Err(ApiError::new(
            Code::Unauthenticated,
            format!(
                "This token expired at {}: a human with the role owner makes a new one with `lastword agent token NAME`",
                rfc3339(at)
            ),
        )),
        Proof::Unknown => Err(Refusal::new(Code::Unauthenticated).into()),
    }
}

/// Waits until the server shuts down.
pub async fn ended(stopping: &mut watch::Receiver<bool>) {
    // The sender lives as long as the server, so an error means shutdown too.
    let _ended = stopping.wait_for(|stopping| *stopping).await.is_ok();
}

/// Waits for `ring`, at most for `wait` or until the server shuts down; `None` if it didn't ring until then.
pub(crate) async fn wait_for<T>(ctx: &Context, ring: impl Future<Output = T>, wait: Duration) -> Option<T> {
    let mut stopping = ctx.stopping.clone();
    let away = ctx.places.as_deref().map(places::Places::leave_a_while);
    let rang = tokio::select! {
        rang = ring => Some(rang),
        () = tokio::time::sleep(wait) => None,
        () = ended(&mut stopping) => None,
    };
    if let Some(away) = away {
        away.end().await;
    }
    rang
}

/// Checks the texts of a call that sends no message: none may exceed a body's limit (L4).
pub(crate) fn check_sizes<'a>(
    ctx: &Context,
    texts: impl IntoIterator<Item = (&'a str, usize)>,
) -> Result<(), ApiError> {
    let max = ctx.handle.limits().body_bytes_max;
    match texts.into_iter().find(|(_, bytes)| *bytes as u64 > max) {
        None => Ok(()),
        Some((member, bytes)) => {
            let refusal = Refusal::new(Code::TooLarge).about(format_args!("`{member}`")).numbers(max, bytes as u64);
            ctx.handle.metrics().refuse(refusal.code);
            Err(refusal.into())
        }
    }
}

/// Checks the nesting of a payload that belongs to no message (L4).
pub(crate) fn nests(ctx: &Context, payload: Option<&str>) -> Result<(), ApiError> {
    let max = ctx.handle.limits().payload_depth_max;
    let Some(depth) = payload.and_then(|text| nesting_above(text.as_bytes(), max)) else { return Ok(()) };
    ctx.handle.metrics().refuse(Code::TooLarge);
    Err(Refusal::new(Code::TooLarge).about("nesting of the payload").numbers(max, depth).into())
}

/// Checks a name; the error names the field that holds it.
pub(crate) fn checked<T>(
    field: &'static str,
    text: &str,
    check: impl Fn(&str) -> Result<T, NameError>,
) -> Result<T, FieldError> {
    check(text).map_err(|error| FieldError::new(field, misnamed(text, &error, |text| check(text).is_ok())))
}

/// Adds up the bytes of all texts in a list.
pub(crate) fn total(texts: &[String]) -> usize {
    texts.iter().map(String::len).sum()
}

/// Turns a reply of another kind than the expected one into an error: a refusal, or a bug.
pub(crate) fn fault_of(reply: Reply) -> ApiError {
    admitted(Ok(reply)).map_or_else(|fault| fault, |other| ApiError::unexpected(&other))
}

/// Turns a refusal in a reply into an error, with its record and the step that lifts it.
pub(crate) fn admitted(reply: Result<Reply, Unserved>) -> Result<Reply, ApiError> {
    match reply? {
        Reply::Refused { refusal, record, about } => {
            let about = about.unwrap_or_default();
            let lift = LiftStep::of(&refusal, RefusedAt::from(&*about));
            Err(ApiError::from(refusal).recorded(record).lifted(lift))
        }
        reply => Ok(reply),
    }
}
