//! Turns that end without the runner: cancelled, stopped, lost, or finished by the agent's own tool.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lastword_client::ClientError;
use lastword_client::wire::Event as Happened;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use lastword_client::{Backoff, RetryingClient};

/// Most closed turns remembered, for a delivery whose response is still in flight when its turn closes.
const CLOSED_MAX: usize = 256;
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Why a run has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The broker ended the turn; there is nothing to finish.
    Withdrawn(&'static str),
    /// The run exceeded the deadline.
    Deadline,
    /// The budget of the grant, or of the agent's day, is used up.
    Budget,
    /// The runner is stopping.
    Ending,
}

/// Signals to a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunStatus {
    /// The reason to end, once there is one.
    pub(crate) stop: Option<Stop>,
    /// The agent's own tool finished the turn; the run continues.
    pub(crate) finished: bool,
    /// The lease was lost, as after the machine slept; the run continues, and its answer will be late.
    pub(crate) lost: bool,
    /// The number of its calls that wait for a human.
    pub(crate) held: usize,
}

/// Sends signals to one run; the first reason to stop stays.
#[derive(Clone, Debug)]
pub(crate) struct RunControl(watch::Sender<RunStatus>);

impl RunControl {
    pub(crate) fn new() -> (Self, watch::Receiver<RunStatus>) {
        let (sender, receiver) = watch::channel(RunStatus::default());
        (Self(sender), receiver)
    }

    pub(crate) fn stop(&self, why: Stop) {
        self.0.send_modify(|run_status| {
            run_status.stop.get_or_insert(why);
        });
    }

    pub(crate) fn run_status(&self) -> RunStatus {
        *self.0.borrow()
    }

    pub(crate) fn listen(&self) -> watch::Receiver<RunStatus> {
        self.0.subscribe()
    }

    pub(crate) fn lose(&self) {
        self.0.send_modify(|run_status| run_status.lost = true);
    }

    fn holds(&self, calls: usize) {
        self.0.send_modify(|run_status| run_status.held = calls);
    }

    fn closed(&self, end: End) {
        match end {
            End::Finished => self.0.send_modify(|run_status| run_status.finished = true),
            End::Lost => self.lose(),
            End::Withdrawn => self.stop(Stop::Withdrawn("cancelled, stopped or past its deadline")),
        }
    }
}

/// Resolves once the run has to end.
pub(crate) async fn stopped(run_status: &mut watch::Receiver<RunStatus>) -> Stop {
    match run_status.wait_for(|run_status| run_status.stop.is_some()).await {
        Ok(run_status) => run_status.stop.unwrap_or(Stop::Ending),
        Err(_) => Stop::Ending,
    }
}

/// How the broker closed a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Finished,
    Lost,
    Withdrawn,
}

/// The running turns, to which the ends of turns are signalled.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<Runs>);

#[derive(Debug, Default)]
struct Runs {
    open: BTreeMap<String, Signalled>,
    closed: VecDeque<(String, End)>,
}

/// A run that gets signals.
#[derive(Debug)]
struct Signalled {
    control: RunControl,
    /// The request that it serves.
    request: Option<String>,
    /// Its calls that wait for a human.
    held: BTreeSet<String>,
}

/// Registers a run for signals until it is dropped.
pub(crate) struct Watched<'a> {
    watch: &'a Watch,
    turn: &'a str,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.watch.runs().open.remove(self.turn);
    }
}

impl Watch {
    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals to the run of this turn from now on, including an end that came before.
    pub(crate) fn begin<'a>(&'a self, turn: &'a str, request: Option<&str>, control: RunControl) -> Watched<'a> {
        let mut runs = self.runs();
        // The event of a turn's end can overtake the response that delivers the turn.
        if let Some((_, end)) = runs.closed.iter().find(|(id, _)| id == turn) {
            control.closed(*end);
        }
        let request = request.map(ToOwned::to_owned);
        runs.open.insert(turn.to_owned(), Signalled { control, request, held: BTreeSet::new() });
        Watched { watch: self, turn }
    }

    fn close(&self, turn: &str, end: End) {
        let mut runs = self.runs();
        if let Some(run) = runs.open.get(turn) {
            run.control.closed(end);
        }
        if runs.closed.len() == CLOSED_MAX {
            runs.closed.pop_front();
        }
        runs.closed.push_back((turn.to_owned(), end));
    }

    /// Notes that a call of a request's run waits for a human, or was decided.
    fn hold(&self, request: &str, call: &str, waits: bool) {
        let mut runs = self.runs();
        for run in runs.open.values_mut().filter(|run| run.request.as_deref() == Some(request)) {
            let changed = if waits { run.held.insert(call.to_owned()) } else { run.held.remove(call) };
            if changed {
                run.control.holds(run.held.len());
            }
        }
    }

    /// Follows the event stream and reconnects after every loss. Returns only if the broker refuses.
    pub(crate) async fn follow(&self, broker: &RetryingClient, ready: watch::Sender<bool>) -> ClientError {
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        let mut after = None;
        loop {
            match self.listen(broker, &mut after, &ready, &mut backoff).await {
                Err(error @ ClientError::Refused(_)) => return error,
                Ok(()) | Err(_) => sleep(backoff.grow()).await,
            }
        }
    }

    /// Follows one connection's events until it closes.
    async fn listen(
        &self,
        broker: &RetryingClient,
        after: &mut Option<u64>,
        ready: &watch::Sender<bool>,
        backoff: &mut Backoff,
    ) -> Result<(), ClientError> {
        let mut events = match broker.client().events(*after).await {
            // A restore went back to before the last event: start anew, with a look at each turn.
            Err(error) if error.shared_position().is_some() => {
                *after = None;
                broker.client().events(None).await?
            }
            events => events?,
        };
        // Deliveries are taken only from here on, so that no end of a turn is missed.
        ready.send_replace(true);
        // The first connection starts at the log's end; a reconnect continues behind the last event seen and so misses
        // nothing.
        if after.is_none() {
            self.look(broker).await?;
        }
        while let Some(event) = events.next().await? {
            *backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
            *after = Some(event.seq);
            if let Some((turn, end)) = closing(&event) {
                self.close(turn, end);
            }
            if let Some((request, call, waits)) = holding(&event) {
                self.hold(request, call, waits);
            }
        }
        Ok(())
    }

    /// Checks each running turn once, because no event says what happened before the stream began.
    async fn look(&self, broker: &RetryingClient) -> Result<(), ClientError> {
        let open: Vec<String> = self.runs().open.keys().cloned().collect();
        for turn in open {
            if !broker.is_open(&turn).await? {
                self.close(&turn, End::Withdrawn);
            }
        }
        Ok(())
    }
}

fn closing(event: &Happened) -> Option<(&str, End)> {
    if event.kind != "turn_closed" {
        return None;
    }
    let end = match event.data.get("end").and_then(Value::as_str)? {
        "finished" => End::Finished,
        "lease_lost" => End::Lost,
        // Cancelled, stopped, past its deadline, or an end that a later broker adds.
        _ => End::Withdrawn,
    };
    Some((event.data.get("turn")?.as_str()?, end))
}

/// Returns the turn that an event says was ended by the broker: cancelled, stopped or past its deadline.
pub(crate) fn withdrawn(event: &Happened) -> Option<&str> {
    closing(event).filter(|(_, end)| *end == End::Withdrawn).map(|(turn, _)| turn)
}

/// Returns the request of a call that waits for a human from now on, or no more, and the id of the approval.
fn holding(event: &Happened) -> Option<(&str, &str, bool)> {
    let waits = match event.kind.as_str() {
        "approval_asked" => true,
        "approval_decided" => false,
        _ => return None,
    };
    Some((event.request_id.as_deref()?, event.data.get("approval")?.as_str()?, waits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_came_before_the_run_began_is_not_missed() {
        let watch = Watch::default();
        watch.close("turn-1", End::Withdrawn);
        let (control, _signs) = RunControl::new();
        let watched = watch.begin("turn-1", None, control.clone());
        assert!(matches!(control.run_status().stop, Some(Stop::Withdrawn(_))));
        drop(watched);
        assert!(watch.runs().open.is_empty());
    }

    #[test]
    fn the_first_reason_to_stop_stays() {
        let (control, _signs) = RunControl::new();
        control.stop(Stop::Deadline);
        control.closed(End::Withdrawn);
        assert_eq!(control.run_status().stop, Some(Stop::Deadline));
    }

    #[test]
    fn a_turn_that_the_agent_finished_itself_goes_on_running() {
        let (control, _signs) = RunControl::new();
        control.closed(End::Finished);
        assert!(control.run_status().finished && control.run_status().stop.is_none());
    }
}
