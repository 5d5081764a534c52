//! `lastword top`: shows the workspace live, and everything that waits for a human.

use std::io::{IsTerminal as _, stdin, stdout};
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyEventKind};
use futures_util::StreamExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::Context;
use crate::failure::Failure;
use crate::session::Authority;
use crate::top::{Model, ModelUpdater, Order, Screen, Seen, Update, carry_out, draw, press, wall_clock};

/// Most updates queued for the screen.
const NEWS_MAX: usize = 64;
/// Interval at which relative times such as `3 min ago` are redrawn.
const CLOCK: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = "Keys: Tab or 1-3 tabs, j/k or arrows move, Enter opens, a approve, r reject, e answer, \
    p pause, u resume, s stop, / filter, ? help, q quit. Decisions are made in your name, as with `approve`.")]
pub(crate) struct Args {}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<(), Failure> {
    if cx.out.is_json() {
        return Err(Failure::usage("top has no JSON form").hint(
            "`lastword tail --json` tells what happens; `approvals`, `escalations` and `agent list` have --json",
        ));
    }
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(Failure::usage("top needs a terminal, for its input and its output")
            .hint("`lastword tail`, `lastword approvals` and `lastword escalations` work without one"));
    }
    // A wrong token or address is reported before the screen is taken.
    let client = cx.client(Authority::Read)?;
    client.agent("me").await?;
    let model = Model::new(client.url(), cx.out.has_color());
    let (news, fresh) = mpsc::channel(NEWS_MAX);
    let (want, wanted) = watch::channel(None);
    let (again, asked) = mpsc::channel(1);
    let feed = ModelUpdater::new(news, wanted, asked);
    tokio::select! {
        () = feed.run(cx) => Ok(()),
        ended = show(cx, model, fresh, &want, &again) => ended,
    }
}

/// Shows the model and acts on keys until the user quits.
async fn show(
    cx: &Context,
    mut model: Model,
    mut fresh: mpsc::Receiver<Update>,
    want: &watch::Sender<Option<String>>,
    again: &mpsc::Sender<()>,
) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut screen = Screen::open()?;
    let mut keys = EventStream::new();
    let mut clock = interval(CLOCK);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        model.now_ms = wall_clock();
        model.resize(screen.terminal.size()?.width);
        let wanted = model.wanted();
        want.send_if_modified(|now| std::mem::replace(now, wanted.clone()) != wanted);
        let mut seen = Seen::default();
        screen.terminal.draw(|frame| seen = draw(frame, &model))?;
        model.seen(seen);
        let order = tokio::select! {
            event = keys.next() => match event.transpose()? {
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    model.now_ms = wall_clock();
                    press(&mut model, key)
                }
                Some(_) => None,
                // The terminal is gone.
                None => return Ok(()),
            },
            update = fresh.recv() => {
                if let Some(update) = update {
                    update.apply(&mut model);
                }
                None
            }
            _ = clock.tick() => None,
            _ = terminate.recv() => return Ok(()),
            _ = hang_up.recv() => return Ok(()),
        };
        match order {
            None => {}
            Some(Order::Quit) => return Ok(()),
            // A refresh that is already queued is enough.
            Some(Order::Refresh) => drop(again.try_send(())),
            Some(order) => match carry_out(cx, order).await {
                Ok(done) => model.done(&done),
                Err(failure) => {
                    let hint = failure.hint.map(|hint| format!(": {hint}")).unwrap_or_default();
                    model.failed(&format!("{}{hint}", failure.message));
                }
            },
        }
    }
}
