//! Calls on schedules, and the task that sends their ticks (D13).

use std::collections::BTreeMap;
use std::time::Duration;

use lastword_broker::{Handle, Live, Unserved};
use lastword_core::input::ScheduleTick;
use lastword_core::state::{Agent, Scheduled};
use lastword_core::{Input, Principal, Reply, State};
use lastword_facts::fact::{Role, Schedule};
use lastword_facts::ids::AgentId;
use lastword_facts::names::{Label, Ref};
use lastword_facts::{Address, Time};
use lastword_wire::{FieldError, NewSchedule, Page, ScheduleView, rfc3339};

use super::checked;
use super::{Caller, Context, admitted, check_sizes, ended};
use crate::cron::{Ticks, reference, template};
use crate::error::ApiError;

/// The longest sleep before the next tick is computed again, because the broker's time doesn't run at the pace of the
/// runtime's timer (L6).
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// A schedule that the configuration sets (D13).
#[derive(Clone, Debug)]
pub struct ConfiguredSchedule {
    /// Its place in the configuration, for humans: `lastword.toml:12`.
    pub at: String,
    /// The schedule's name, expression, recipient and text.
    pub schedule: NewSchedule,
}

/// Why a schedule of the configuration was not set.
#[derive(Debug)]
pub(crate) enum UnsetSchedule {
    /// The configuration is invalid.
    Wrong {
        /// The schedule's place in the configuration.
        at: String,
        /// The reason, as a sentence.
        reason: String,
    },
    /// The broker didn't serve the call.
    Unserved(Unserved),
}

impl From<Unserved> for UnsetSchedule {
    fn from(unserved: Unserved) -> Self {
        Self::Unserved(unserved)
    }
}

/// Sets a schedule.
pub async fn set(ctx: &Context, caller: Caller, new: NewSchedule) -> Result<ScheduleView, ApiError> {
    caller.human()?;
    check_sizes(ctx, [("body", new.body.len())])?;
    let (schedule, next_at) = read(&ctx.handle, new)?;
    let name = schedule.name.clone();
    admitted(ctx.handle.submit(Input::SetSchedule(caller.principal, Box::new(schedule), next_at)).await)?;
    ctx.scheduled.notify_one();
    one(ctx, &name).await
}

/// Parses a schedule; returns it with its first tick.
fn read(handle: &Handle, new: NewSchedule) -> Result<(Schedule, Time), FieldError> {
    let zone = new.time_zone.unwrap_or_else(|| "UTC".into());
    let ticks = Ticks::parse(&new.cron, &zone)?;
    let now = handle.now();
    let next_at = ticks.check_interval(now, handle.limits().schedule_interval_ms)?;
    let to = Address::parse(&new.to).map_err(|error| FieldError::new("to", format!("{:?} {error}", new.to)))?;
    let schedule = Schedule {
        name: checked("name", &new.name, Label::new)?,
        cron: new.cron.into(),
        time_zone: zone.into(),
        to,
        body: new.body.into(),
        reference: new.reference.map(Into::into),
    };
    // Refuses a REF template that would fail only at the first tick.
    reference(&schedule, &ticks, 1, now)?;
    Ok((schedule, next_at))
}

/// Sets the schedules of the configuration on behalf of the first human who may set one. Parses all of them before it
/// sets any. Skips an unchanged schedule, so that a restart records nothing and counts as no act (D12).
pub(crate) async fn configure(handle: &Handle, entries: Vec<ConfiguredSchedule>) -> Result<(), UnsetSchedule> {
    let wrong = |at: &str, reason: String| UnsetSchedule::Wrong { at: at.to_owned(), reason };
    let mut written: BTreeMap<Label, (String, Schedule, Time)> = BTreeMap::new();
    for ConfiguredSchedule { at, schedule } in entries {
        let (schedule, next_at) = read(handle, schedule).map_err(|error| wrong(&at, error.to_string()))?;
        if let Some((first, ..)) = written.get(&schedule.name) {
            return Err(wrong(&at, format!("`name` {:?} is taken by {first}", schedule.name.as_str())));
        }
        written.insert(schedule.name.clone(), (at, schedule, next_at));
    }
    for (name, (at, schedule, next_at)) in written {
        let look = move |live: &Live<'_>| (setter(live.state), live.state.schedules.get(&name).cloned());
        let (setter, known) = handle.query(look).await?;
        let by = setter.ok_or_else(|| wrong(&at, "no human may set it".into()))?;
        if known.is_some_and(|known| known.schedule == schedule && known.by == by.agent()) {
            continue;
        }
        let reply = handle.submit(Input::SetSchedule(by, Box::new(schedule), next_at)).await;
        admitted(reply).map_err(|fault| wrong(&at, fault.0.detail))?;
    }
    Ok(())
}

/// Returns the human with the lowest number who may set schedules: the operator, unless their role was lowered.
fn setter(state: &State) -> Option<Principal> {
    let may = |agent: &Agent| agent.live && agent.is_human() && agent.role <= Role::Operator;
    let first = state.agents.iter().position(may).and_then(|at| u32::try_from(at).ok()).map(AgentId)?;
    let (credential, _) = state.credentials.iter().find(|(_, agent)| **agent == first)?;
    state.prove(credential)
}

/// Lists schedules by name: to a human all of them, to an agent those that ask it.
pub async fn list(ctx: &Context, caller: Caller) -> Result<Page<ScheduleView>, ApiError> {
    let principal = caller.principal;
    let seen = move |live: &Live<'_>| {
        let agent = live.state.agent(principal.agent()).filter(|_| !principal.is_human());
        let asks = |to: &Address| agent.is_none_or(|agent| asks(to, agent));
        let known = live.state.schedules.values().filter(|known| asks(&known.schedule.to));
        known.map(|known| view(live.state, known)).collect()
    };
    Ok(Page::whole(ctx.handle.query(seen).await?))
}

/// Returns whether a schedule with this addressee may ask the agent.
fn asks(to: &Address, agent: &Agent) -> bool {
    match to {
        Address::Name(name) => name.as_str() == agent.name(),
        Address::Action(action) => agent.profile.actions.contains(action),
        Address::Group(group) => agent.profile.groups.contains(group),
        Address::User => false,
        Address::All => true,
        Address::List(list) => list.iter().any(|to| asks(to, agent)),
    }
}

/// Removes a schedule.
pub async fn remove(ctx: &Context, caller: Caller, name: &str) -> Result<(), ApiError> {
    caller.human()?;
    let name = named(name)?;
    admitted(ctx.handle.submit(Input::RemoveSchedule(caller.principal, name)).await).map(|_| ())
}

/// Runs a schedule now.
pub async fn run(ctx: &Context, caller: Caller, name: &str) -> Result<ScheduleView, ApiError> {
    caller.human()?;
    let (name, now) = (named(name)?, ctx.handle.now());
    let known = find(ctx, &name).await?;
    let reference = tick_reference(&known, now)?;
    let reply = ctx.handle.submit(Input::RunSchedule(caller.principal, name.clone(), reference)).await;
    match admitted(reply)? {
        Reply::Sent(_) => one(ctx, &name).await,
        other => Err(ApiError::unexpected(&other)),
    }
}

/// Sends the ticks that are due, until the server shuts down. Ticks missed while it was down are made up by a single
/// one.
pub(crate) async fn tick(ctx: Context) -> std::io::Result<()> {
    let mut stopping = ctx.stopping.clone();
    loop {
        let pause = match tick_due(&ctx).await {
            Ok(pause) => pause,
            Err(error) => {
                // A full queue empties again. A broker that stopped for good ends the server, and with it this loop.
                tracing::warn!(%error, "the schedules can't be read; they are tried again");
                LOOK_AGAIN
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = ctx.scheduled.notified() => {}
            () = ended(&mut stopping) => return Ok(()),
        }
    }
}

/// Sends the ticks that are due now; returns the time until the next look.
async fn tick_due(ctx: &Context) -> Result<Duration, Unserved> {
    let now = ctx.handle.now();
    for known in schedules(ctx).await?.iter().filter(|known| known.next_at <= now) {
        let Some(input) = due(known, now) else { continue };
        if let Err(error) = ctx.handle.submit(input).await {
            tracing::warn!(schedule = %known.schedule.name, %error, "a tick was not made; it is tried again");
        }
    }
    // Read again: each tick that was made has moved its schedule's next one.
    let next = schedules(ctx).await?.into_iter().map(|known| known.next_at);
    Ok(until_next_look(next, now))
}

async fn schedules(ctx: &Context) -> Result<Vec<Scheduled>, Unserved> {
    ctx.handle.query(|live| live.state.schedules.values().cloned().collect()).await
}

/// Returns the shortest sleep among schedules with their next ticks at `next`. An overdue one doesn't delay the others.
fn until_next_look(next: impl Iterator<Item = Time>, now: Time) -> Duration {
    next.map(|next| pause(next, now)).min().unwrap_or(Duration::MAX)
}

/// Returns the sleep until the tick at `next`; a tick that is overdue, because it was refused, is tried again later.
fn pause(next: Time, now: Time) -> Duration {
    if next <= now { LOOK_AGAIN } else { Duration::from_millis(next.since(now)).min(LOOK_AGAIN) }
}

/// Returns the tick that is due; `None` if this version of the program can't parse the expression.
fn due(known: &Scheduled, now: Time) -> Option<Input> {
    let schedule = &known.schedule;
    let ticks = Ticks::parse(&schedule.cron, &schedule.time_zone)
        .inspect_err(|error| tracing::error!(schedule = %schedule.name, %error, "the schedule can't be read"))
        .ok()?;
    // After now, not after the missed tick: one tick makes up for all that were missed.
    let next_at = ticks.after(now)?;
    let reference = reference(schedule, &ticks, known.ticks + 1, known.next_at).ok()?;
    let tick = ScheduleTick { name: schedule.name.clone(), due: known.next_at, next_at, reference };
    Some(Input::TickSchedule(Box::new(tick)))
}

fn tick_reference(known: &Scheduled, now: Time) -> Result<Ref, FieldError> {
    let ticks = Ticks::parse(&known.schedule.cron, &known.schedule.time_zone)?;
    reference(&known.schedule, &ticks, known.ticks + 1, now)
}

fn named(name: &str) -> Result<Label, ApiError> {
    Label::new(name).map_err(|_| ApiError::unknown(name))
}

async fn find(ctx: &Context, name: &Label) -> Result<Scheduled, ApiError> {
    let wanted = name.clone();
    let found = ctx.handle.query(move |live| live.state.schedules.get(&wanted).cloned()).await?;
    found.ok_or_else(|| ApiError::unknown(name.as_str()))
}

async fn one(ctx: &Context, name: &Label) -> Result<ScheduleView, ApiError> {
    let wanted = name.clone();
    let look = move |live: &Live<'_>| live.state.schedules.get(&wanted).map(|known| view(live.state, known));
    ctx.handle.query(look).await?.ok_or_else(|| ApiError::unknown(name.as_str()))
}

fn view(state: &State, known: &Scheduled) -> ScheduleView {
    let schedule = &known.schedule;
    let last = known.grant.get().and_then(|grant| state.grants.get(&grant));
    ScheduleView {
        name: schedule.name.to_string(),
        cron: schedule.cron.to_string(),
        time_zone: schedule.time_zone.to_string(),
        to: schedule.to.to_string(),
        body: schedule.body.to_string(),
        reference: template(schedule),
        by: state.name_of(known.by).to_owned(),
        next_at: rfc3339(known.next_at),
        ticks: known.ticks,
        last_at: known.last_at.get().map(rfc3339),
        open: last.is_some_and(|grant| grant.end.is_none()),
        skipped_at: known.skipped.map(|(at, _)| rfc3339(at)),
        skipped: known.skipped.and_then(|(_, code)| code),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use lastword_broker::clock::{Reading, Source};
    use serde_json::json;

    use super::*;
    use crate::{Config, Server, WorkspaceSettings};

    #[test]
    fn no_schedule_is_left_without_a_next_look() {
        let at = |ms: u64| Time(1_000_000 + ms);
        assert_eq!(pause(at(250), at(0)), Duration::from_millis(250));
        assert_eq!(pause(at(86_400_000), at(0)), LOOK_AGAIN, "the broker's clock may jump");
        assert_eq!((pause(at(0), at(0)), pause(at(0), at(5))), (LOOK_AGAIN, LOOK_AGAIN), "overdue");
        let beside_an_overdue_one = until_next_look([at(0), at(250)].into_iter(), at(0));
        assert_eq!(beside_an_overdue_one, Duration::from_millis(250), "an overdue schedule delays no other");
        assert_eq!(until_next_look([].into_iter(), at(0)), Duration::MAX, "nothing to look for");
    }

    /// A day of a machine that runs, in ms.
    const DAY: u64 = 24 * 3_600_000;

    #[tokio::test]
    async fn a_schedule_that_is_alone_ticks_every_day_without_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let us = 20_000 * DAY * 1_000;
        let reading = Arc::new(Mutex::new(Reading { monotonic_us: us, boottime_us: us, wall_us: us }));
        let clocks = Source::Set(Arc::clone(&reading));
        let server = Server::start(Config {
            settings: WorkspaceSettings { clocks, ..Default::default() },
            ..Config::local(dir.path())
        })
        .await
        .unwrap();
        let ctx = server.context();
        let token = std::fs::read_to_string(server.operator_token_file()).unwrap();
        let human = Caller::prove(&ctx.handle, token.trim(), None).unwrap();
        let new = json!({ "name": "nightly", "cron": "0 2 * * *", "to": "operator", "body": "look at the tests" });
        set(ctx, human, serde_json::from_value(new).unwrap()).await.unwrap();
        let mut due = Vec::new();
        for _ in 0..3 {
            {
                let mut reading = reading.lock().unwrap();
                reading.monotonic_us += DAY * 1_000;
                reading.boottime_us += DAY * 1_000;
                reading.wall_us += DAY * 1_000;
            }
            assert!(tick_due(ctx).await.unwrap() <= LOOK_AGAIN);
            let known = schedules(ctx).await.unwrap().remove(0);
            due.push(known.next_at);
            assert!(known.next_at > ctx.handle.now(), "the next tick lies ahead");
        }
        assert!(due.windows(2).all(|days| days[1].since(days[0]) == DAY), "{due:?}");
        server.shutdown().await;
    }
}
