//! One delivery, from the start of its run to the finish of its turn.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use lastword_client::wire::{Delivery, Finish, Progress, TurnView, Usage};
use lastword_client::{Client, ClientError};
use lastword_facts::{Code, FinishStatus};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, Sleep, interval, sleep, timeout};

use crate::event::{Event, EventSink};
use crate::guard::Guard;
use crate::settings::Settings;
use crate::watch::{RunControl, RunStatus, Stop, Watch};
use crate::{a2a, acp, command};
use lastword_client::{FinishOutcome, RetryingClient, RunnerLimits};

/// Most progress notes queued; only the latest is sent.
const NOTES_MAX: usize = 16;
/// Longest progress note, in characters.
const NOTE_CHARS_MAX: usize = 200;
/// Time limit of a progress report; a lost one is made up for by the next.
pub(crate) const PROGRESS: Duration = Duration::from_secs(5);
/// Time to wait for the event that says how a turn ended, once the turn is known to be over.
const CATCH_UP: Duration = Duration::from_secs(5);

/// The phase of a runner's shutdown, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Working,
    /// Takes no more deliveries; open runs may finish.
    Draining,
    /// Ends open runs.
    Ending,
}

/// Why a run was ended by a budget; its task stays open.
const BUDGET: &str = "the budget is used up, so the run was ended; it goes on once a human gives more";

/// State shared by all runs of a runner.
pub(crate) struct RunnerContext {
    pub(crate) settings: Settings,
    /// The agent's name at the broker.
    pub(crate) agent: String,
    pub(crate) broker: RetryingClient,
    pub(crate) limits: RunnerLimits,
    pub(crate) watch: Watch,
    pub(crate) report: EventSink,
    pub(crate) host: DriverHost,
    pub(crate) guard: &'static Guard,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// The driver and its state.
pub(crate) enum DriverHost {
    Command,
    Acp(Box<acp::Host>),
    A2a,
}

/// A run, as a driver sees it.
pub(crate) struct Run {
    pub(crate) delivery: Delivery,
    pub(crate) turn: TurnView,
    /// A client that acts in the turn.
    pub(crate) client: Client,
    pub(crate) run_status: watch::Receiver<RunStatus>,
    notes: mpsc::Sender<String>,
    meter: RunMeter,
}

/// Takes the usage of a run while it accrues.
#[derive(Clone, Debug)]
pub(crate) struct RunMeter(watch::Sender<Option<Usage>>);

impl RunMeter {
    /// Sets the usage from the run's start until now, to be reported at the pace of progress.
    pub(crate) fn report(&self, usage: Option<Usage>) {
        self.0.send_if_modified(|known| {
            let is_new = usage.is_some() && *known != usage;
            if is_new {
                *known = usage;
            }
            is_new
        });
    }
}

impl Run {
    pub(crate) fn meter(&self) -> RunMeter {
        self.meter.clone()
    }

    /// Queues a progress note, cut to one line. Notes that exceed the queue are dropped.
    pub(crate) fn note(&self, text: &str) {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let note: String = line.chars().take(NOTE_CHARS_MAX).collect();
        if !note.is_empty() {
            // A full queue drops this note: reports of progress are best effort.
            let _dropped = self.notes.try_send(note);
        }
    }
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// The agent's final output; empty if it gave none.
    pub(crate) answer: String,
    /// The status to finish with; `None` lets the broker choose `waiting` or `completed`.
    pub(crate) status: Option<FinishStatus>,
    /// The reason of a failure, rejection or partial answer, for the requester.
    pub(crate) reason: Option<String>,
    /// The model usage, if the agent reports it.
    pub(crate) usage: Option<Usage>,
}

impl Ended {
    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self { status: Some(FinishStatus::Failed), reason: Some(reason.into()), ..Self::default() }
    }
}

/// Runs the agent for one delivery and finishes its turn.
pub(crate) async fn serve(shared: Arc<RunnerContext>, delivery: Delivery, turn: TurnView) {
    let (control, run_status) = RunControl::new();
    let (notes, noted) = mpsc::channel(NOTES_MAX);
    let (metered, usage) = watch::channel(None);
    let client = shared.broker.client().in_turn(&turn.token);
    let mut run =
        Run { delivery: delivery.clone(), turn: turn.clone(), client, run_status, notes, meter: RunMeter(metered) };
    report_taken(&shared.report, &delivery, &turn);
    let ended = {
        let _watched = shared.watch.begin(&turn.id, delivery.message.request_id.as_deref(), control.clone());
        let mut attending = pin!(keep_lease(&shared, &delivery, &turn, noted, usage, &control));
        let mut running = pin!(async {
            // `catch_up` belongs to the run: `keep_lease` must renew the lease and watch the deadline until then.
            let ended = shared.drive(&mut run).await;
            catch_up(&shared, &turn, &mut run.run_status).await;
            ended
        });
        tokio::select! {
            ended = &mut running => ended,
            () = &mut attending => Ended::failed("the runner lost the turn"),
        }
    };
    let run_status = control.run_status();
    match (run_status.stop, run_status.finished) {
        (Some(Stop::Withdrawn(reason)), _) => {
            shared.report.emit(&Event::Withdrawn { turn: turn.id.clone(), reason });
        }
        (_, true) => {
            let answer = None;
            let reason = Some("its own tool finished the turn".to_owned());
            shared.report.emit(&Event::Finished { turn: turn.id, status: "finished", answer, reason });
        }
        // The agent's complete answer is still sent and recorded as late; only a failed or empty run is dropped.
        (None, _) if run_status.lost && (ended.status.is_some() || ended.answer.is_empty()) => {
            shared.report.emit(&Event::Withdrawn { turn: turn.id, reason: "its lease was lost" });
        }
        (stop, false) => finish(&shared, &delivery, &turn, outcome(ended, stop, shared.settings.deadline)).await,
    }
}

/// If the turn is already over, waits for the event that says why before anything is sent: a turn that the agent's own
/// tool finished must not be finished again.
async fn catch_up(shared: &RunnerContext, turn: &TurnView, run_status: &mut watch::Receiver<RunStatus>) {
    if let Ok(false) = shared.broker.is_open(&turn.id).await {
        // Without the event, the finish is refused and recorded as late.
        let _told = timeout(CATCH_UP, ended_by_broker(run_status)).await;
    }
}

/// Resolves once the end of the turn is known.
async fn ended_by_broker(run_status: &mut watch::Receiver<RunStatus>) {
    if run_status
        .wait_for(|run_status| run_status.finished || run_status.lost || run_status.stop.is_some())
        .await
        .is_err()
    {
        std::future::pending::<()>().await;
    }
}

impl RunnerContext {
    async fn drive(&self, run: &mut Run) -> Ended {
        match &self.host {
            DriverHost::Command => command::run(self, run).await,
            DriverHost::Acp(host) => host.run(self, run).await,
            DriverHost::A2a => a2a::run(self, run).await,
        }
    }
}

fn report_taken(report: &EventSink, delivery: &Delivery, turn: &TurnView) {
    report.emit(&Event::Taken {
        turn: turn.id.clone(),
        attempt: turn.attempt,
        from: delivery.message.from.clone(),
        reference: delivery.message.reference.clone(),
        request_id: delivery.message.request_id.clone(),
    });
}

/// Turns a run that was cut short into a failure, or into one that is held; keeps its output.
fn outcome(ended: Ended, stop: Option<Stop>, deadline: Duration) -> Ended {
    let (status, reason) = match stop {
        None | Some(Stop::Withdrawn(_)) => return ended,
        Some(Stop::Deadline) => {
            (FinishStatus::Failed, format!("no answer within {} s; the run was ended", deadline.as_secs_f64()))
        }
        Some(Stop::Budget) => (FinishStatus::Held, BUDGET.to_owned()),
        Some(Stop::Ending) => (FinishStatus::Failed, "the runner was stopped while the agent was at work".to_owned()),
    };
    Ended { status: Some(status), reason: Some(reason), ..ended }
}

async fn finish(shared: &RunnerContext, delivery: &Delivery, turn: &TurnView, ended: Ended) {
    let empty = ended.answer.trim().is_empty();
    let reason = ended.reason.or_else(|| empty.then(|| "the agent gave no answer at all".to_owned()));
    let finish = Finish {
        answer: if empty { String::new() } else { cut(ended.answer, shared.limits.body_bytes_max) },
        status: ended.status,
        reason: reason.clone(),
        usage: believed(ended.usage, shared),
        ..Finish::default()
    };
    let turn_id = turn.id.clone();
    let event = match shared.broker.finish(delivery, turn, &finish).await {
        FinishOutcome::Finished(finished) => {
            let ended_by_broker = finish.status.map_or("completed", FinishStatus::word);
            if let Some(message) = finished.warning {
                shared.report.emit(&Event::Warning { message });
            }
            // Without a status the broker chose it: a request still open is waiting, and an empty answer has failed.
            let status = match (finished.open, finish.status, empty) {
                (true, None, _) => "waiting",
                (false, None, true) => "failed",
                (_, _, _) => ended_by_broker,
            };
            let reason = reason.filter(|_| status != "waiting");
            Event::Finished { turn: turn_id, status, answer: finished.answer, reason }
        }
        FinishOutcome::Late => Event::Late { turn: turn_id },
        FinishOutcome::Refused(reason) => Event::Unanswered { turn: turn_id, reason },
    };
    shared.report.emit(&event);
}

/// Cuts an answer to `bytes_max` bytes between characters; the last line states the original length.
fn cut(answer: String, bytes_max: usize) -> String {
    if answer.len() <= bytes_max {
        return answer;
    }
    let mark = format!("\n[cut: the answer had {} bytes]", answer.len());
    let mut end = bytes_max.saturating_sub(mark.len());
    while !answer.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{mark}", &answer[..end])
}

/// Renews the lease, passes notes on, and enforces the deadline and the runner's shutdown. Never returns.
async fn keep_lease(
    shared: &RunnerContext,
    delivery: &Delivery,
    turn: &TurnView,
    mut noted: mpsc::Receiver<String>,
    mut usage: watch::Receiver<Option<Usage>>,
    control: &RunControl,
) {
    let pace = shared.settings.progress.max(shared.limits.progress);
    // A third of the lease, so that a lost renewal is made up for before the lease expires.
    let mut renewal = interval((shared.limits.lease / 3).max(Duration::from_millis(1)));
    renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick fires at once, and the lease is still fresh.
    renewal.tick().await;
    // Two receivers, because each branch below borrows its own.
    let (mut phase, mut end_phase) = (shared.phase.clone(), shared.phase.clone());
    let mut ended = false;
    let mut deadline = RunTime::of(shared.settings.deadline);
    let (mut signs, mut lost) = (control.listen(), false);
    let mut drain: Option<Pin<Box<Sleep>>> = None;
    // Notes are for people, who want few. Budgets are checked as often as the broker takes reports.
    let mut cooling: Option<Pin<Box<Sleep>>> = None;
    let mut quiet: Option<Pin<Box<Sleep>>> = None;
    let mut latest = None;
    let mut spent = false;
    loop {
        tokio::select! {
            Some(note) = noted.recv() => latest = Some(note),
            Ok(()) = usage.changed() => spent = true,
            () = over(&mut cooling) => cooling = None,
            () = over(&mut quiet) => quiet = None,
            _ = renewal.tick() => {
                if lost {
                    end_if_settled(shared, delivery, control).await;
                    continue;
                }
                let so_far = usage.borrow().clone();
                report_progress(shared, turn, String::new(), so_far, control).await;
            }
            Ok(()) = signs.changed() => {
                let now = *signs.borrow_and_update();
                deadline.stand_still(now.held > 0);
                if now.lost && !lost {
                    lost = true;
                    let message = "the lease was lost: the run goes on, and its answer will be late".to_owned();
                    shared.report.emit(&Event::Warning { message });
                }
            }
            () = deadline.over() => {
                deadline.end();
                control.stop(Stop::Deadline);
            }
            () = reached(&mut phase, Phase::Draining), if drain.is_none() => {
                drain = Some(Box::pin(sleep(shared.settings.grace)));
            }
            () = over(&mut drain), if !ended => {
                control.stop(Stop::Ending);
                ended = true;
            }
            () = reached(&mut end_phase, Phase::Ending), if !ended => {
                control.stop(Stop::Ending);
                ended = true;
            }
        }
        // Notes that came during the pause have replaced each other: only the newest is sent. Once the lease is lost each
        // report would be refused.
        if !lost && cooling.is_none() && (spent || (quiet.is_none() && latest.is_some())) {
            spent = false;
            let note = if quiet.is_none() { latest.take() } else { None };
            if let Some(note) = note.clone() {
                shared.report.emit(&Event::Progress { turn: turn.id.clone(), note });
                quiet = Some(Box::pin(sleep(pace)));
            }
            let so_far = usage.borrow_and_update().clone();
            report_progress(shared, turn, note.unwrap_or_default(), so_far, control).await;
            cooling = Some(Box::pin(sleep(shared.limits.progress)));
        }
    }
}

/// The time that a run may take. A human's time isn't the run's: while a call waits for a decision, it stands still.
struct RunTime {
    left: Duration,
    /// `None` while it stands still, and once it is over.
    since: Option<Instant>,
}

impl RunTime {
    fn of(left: Duration) -> Self {
        Self { left, since: Some(Instant::now()) }
    }

    fn stand_still(&mut self, still: bool) {
        match self.since {
            Some(since) if still => {
                self.left = self.left.saturating_sub(since.elapsed());
                self.since = None;
            }
            None if !still && !self.left.is_zero() => self.since = Some(Instant::now()),
            Some(_) | None => {}
        }
    }

    /// Resolves when the time is over.
    async fn over(&self) {
        match self.since {
            Some(since) => tokio::time::sleep_until(since + self.left).await,
            None => std::future::pending().await,
        }
    }

    fn end(&mut self) {
        (self.left, self.since) = (Duration::ZERO, None);
    }
}

/// Ends a run whose lease was lost once its request is over: cancelled, stopped, or answered by a later attempt.
async fn end_if_settled(shared: &RunnerContext, delivery: &Delivery, control: &RunControl) {
    let Some(request) = delivery.message.request_id.as_deref() else { return };
    let known = timeout(PROGRESS, shared.broker.client().request_state(request)).await;
    if known.is_ok_and(|known| known.is_ok_and(|known| known.status.is_some())) {
        control.stop(Stop::Withdrawn("its request is over"));
    }
}

/// Resolves when the timer fires; never if there is none.
async fn over(timer: &mut Option<Pin<Box<Sleep>>>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}

/// Resolves once the shutdown has reached this phase.
pub(crate) async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    if phase.wait_for(|phase| *phase >= wanted).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Returns the usage, unless it is one that the broker refuses: the answer must not be lost with it.
fn believed(usage: Option<Usage>, shared: &RunnerContext) -> Option<Usage> {
    usage.filter(|usage| {
        let checked = usage.check();
        if let Err(error) = &checked {
            shared.report.emit(&Event::Warning { message: format!("the program's figures are left out: {error}") });
        }
        checked.is_ok()
    })
}

/// Reports progress, which renews the lease. A lost report is made up for by the next.
async fn report_progress(
    shared: &RunnerContext,
    turn: &TurnView,
    note: String,
    usage: Option<Usage>,
    control: &RunControl,
) {
    let usage = usage.filter(|usage| usage.check().is_ok());
    let progress = Progress { note, usage, ..Progress::default() };
    match timeout(PROGRESS, shared.broker.client().progress(&turn.id, &progress)).await {
        Ok(Err(ClientError::Refused(problem))) if matches!(problem.code, Code::LeaseLost | Code::EpochOver) => {
            // The event stream says why the lease is gone; without that event the turn counts as lost.
            if timeout(CATCH_UP, ended_by_broker(&mut control.listen())).await.is_err() {
                control.lose();
            }
        }
        Ok(Ok(renewed)) if renewed.end.is_some() => control.stop(Stop::Budget),
        Ok(Ok(_) | Err(_)) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_humans_time_is_not_the_runs() {
        let secs = Duration::from_secs;
        let mut run = RunTime::of(secs(60));
        sleep(secs(50)).await;
        run.stand_still(true);
        assert!(timeout(secs(86_400), run.over()).await.is_err(), "a call waits for a human");
        run.stand_still(false);
        assert!(timeout(secs(9), run.over()).await.is_err());
        assert!(timeout(secs(2), run.over()).await.is_ok());
        run.end();
        run.stand_still(false);
        assert!(timeout(secs(86_400), run.over()).await.is_err(), "it is over once");
    }

    #[test]
    fn an_answer_that_is_too_long_is_cut_between_characters_and_says_so() {
        let text = cut("é".repeat(100), 51);
        assert!(text.len() <= 51 && text.ends_with("\n[cut: the answer had 200 bytes]"), "{text}");
        assert_eq!(cut("short".to_owned(), 5), "short");
    }

    #[test]
    fn a_run_that_was_cut_short_has_failed_or_is_held_and_keeps_what_it_said() {
        let ended = Ended { answer: "half".to_owned(), ..Ended::default() };
        let ended = outcome(ended, Some(Stop::Ending), Duration::from_secs(1));
        assert_eq!((ended.status, ended.answer.as_str()), (Some(FinishStatus::Failed), "half"));
        let held = outcome(
            Ended { answer: "half".to_owned(), ..Ended::default() },
            Some(Stop::Budget),
            Duration::from_secs(1),
        );
        assert_eq!((held.status, held.answer.as_str()), (Some(FinishStatus::Held), "half"), "its task stays open");
        let whole = outcome(Ended::default(), None, Duration::from_secs(1));
        assert!(whole.status.is_none() && whole.reason.is_none());
    }
}
