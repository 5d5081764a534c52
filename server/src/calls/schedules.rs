//! Schedules: set, listed, run and taken away by humans, and ticked by the shell (D13).

use std::time::Duration;

use lastword_proto::fact::Schedule;
use lastword_proto::input::ScheduleTick;
use lastword_proto::names::{Label, Ref};
use lastword_proto::state::Scheduled;
use lastword_proto::wire::{FieldError, NewSchedule, Page, ScheduleView, rfc3339};
use lastword_proto::{Address, Input, Reply, State, Time};

use super::registry::checked;
use super::{Caller, Context, admitted, ended, fits};
use crate::broker::Live;
use crate::cron::{Ticks, reference, template};
use crate::edges::Fault;

/// Longest sleep before the next tick is looked for again: the broker's clock has a pace of its own (L6).
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// Sets a schedule.
pub(crate) async fn set(ctx: &Context, caller: Caller, new: NewSchedule) -> Result<ScheduleView, Fault> {
    caller.human()?;
    fits(ctx, [("body", new.body.len())])?;
    let zone = new.time_zone.unwrap_or_else(|| "UTC".into());
    let ticks = Ticks::parse(&new.cron, &zone)?;
    let now = ctx.handle.now();
    let next_at = ticks.check_interval(now, ctx.handle.limits().schedule_interval_ms)?;
    let name = checked("name", &new.name, Label::new)?;
    let to = Address::parse(&new.to).map_err(|error| FieldError::new("to", format!("{:?} {error}", new.to)))?;
    let schedule = Schedule {
        name: name.clone(),
        cron: new.cron.into(),
        time_zone: zone.into(),
        to,
        body: new.body.into(),
        reference: new.reference.map(Into::into),
    };
    reference(&schedule, &ticks, 1, now)?;
    admitted(ctx.handle.submit(Input::SetSchedule(caller.principal, Box::new(schedule), next_at)).await)?;
    ctx.scheduled.notify_one();
    one(ctx, &name).await
}

/// All schedules, by name.
pub(crate) async fn list(ctx: &Context) -> Result<Page<ScheduleView>, Fault> {
    let all = |live: &Live<'_>| live.state.schedules.values().map(|known| view(live.state, known)).collect();
    Ok(Page::whole(ctx.handle.query(all).await?))
}

/// Takes a schedule away.
pub(crate) async fn remove(ctx: &Context, caller: Caller, name: &str) -> Result<(), Fault> {
    caller.human()?;
    let name = named(name)?;
    admitted(ctx.handle.submit(Input::RemoveSchedule(caller.principal, name)).await).map(|_| ())
}

/// Lets a schedule run now.
pub(crate) async fn run(ctx: &Context, caller: Caller, name: &str) -> Result<ScheduleView, Fault> {
    caller.human()?;
    let (name, now) = (named(name)?, ctx.handle.now());
    let known = find(ctx, &name).await?;
    let reference = tick_reference(&known, now)?;
    let reply = ctx.handle.submit(Input::RunSchedule(caller.principal, name.clone(), reference)).await;
    match admitted(reply)? {
        Reply::Sent(_) => one(ctx, &name).await,
        other => Err(Fault::unexpected(&other)),
    }
}

/// Ticks what is due, until the server ends. What was missed while it was down is made up once.
pub(crate) async fn tick(ctx: Context) -> std::io::Result<()> {
    let mut stopping = ctx.stopping.clone();
    loop {
        let now = ctx.handle.now();
        let Ok(all) = ctx.handle.query(|live| live.state.schedules.values().cloned().collect::<Vec<_>>()).await else {
            return Ok(());
        };
        for known in all.iter().filter(|known| known.next_at <= now) {
            let Some(input) = due(known, now) else { continue };
            if let Err(error) = ctx.handle.submit(input).await {
                tracing::warn!(schedule = %known.schedule.name, %error, "a tick was not made; it is tried again");
            }
        }
        let next = all.iter().map(|known| known.next_at).filter(|next| *next > now).min();
        let wait = next.map_or(Duration::MAX, |next| Duration::from_millis(next.since(now)).min(LOOK_AGAIN));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = ctx.scheduled.notified() => {}
            () = ended(&mut stopping) => return Ok(()),
        }
    }
}

/// The tick that is due; none for an expression that this program can't read any more.
fn due(known: &Scheduled, now: Time) -> Option<Input> {
    let schedule = &known.schedule;
    let ticks = Ticks::parse(&schedule.cron, &schedule.time_zone)
        .inspect_err(|error| tracing::error!(schedule = %schedule.name, %error, "the schedule can't be read"))
        .ok()?;
    let next_at = ticks.after(now)?;
    let reference = reference(schedule, &ticks, known.ticks + 1, known.next_at).ok()?;
    let tick = ScheduleTick { name: schedule.name.clone(), due: known.next_at, next_at, reference };
    Some(Input::TickSchedule(Box::new(tick)))
}

fn tick_reference(known: &Scheduled, now: Time) -> Result<Ref, FieldError> {
    let ticks = Ticks::parse(&known.schedule.cron, &known.schedule.time_zone)?;
    reference(&known.schedule, &ticks, known.ticks + 1, now)
}

fn named(name: &str) -> Result<Label, Fault> {
    Label::new(name).map_err(|_| Fault::unknown(name))
}

async fn find(ctx: &Context, name: &Label) -> Result<Scheduled, Fault> {
    let wanted = name.clone();
    let found = ctx.handle.query(move |live| live.state.schedules.get(&wanted).cloned()).await?;
    found.ok_or_else(|| Fault::unknown(name.as_str()))
}

async fn one(ctx: &Context, name: &Label) -> Result<ScheduleView, Fault> {
    let wanted = name.clone();
    let look = move |live: &Live<'_>| live.state.schedules.get(&wanted).map(|known| view(live.state, known));
    ctx.handle.query(look).await?.ok_or_else(|| Fault::unknown(name.as_str()))
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
