//! What a broker does with its news, under the discipline of the server's shell.
//!
//! Lease, start of the epoch, replay through it, then serve. Judge, append, and release the replies only after the
//! acknowledgement. A failed append drops the core, which is rebuilt from the log.

use std::collections::VecDeque;

use lastword_core::Input;
use lastword_core::input::ScheduleTick;
use lastword_core::state::Scheduled;
use lastword_facts::Seq;
use lastword_facts::fact::EDITION;
use lastword_facts::ids::HOUR_MS;
use lastword_facts::names::Ref;

use super::broker::{Batch, Begins, Flying, HeldReply, Leading, Role, Starting};
use super::clock::Clock;
use super::promises::Released;
use super::{Arrival, HistoryRun, News, Wrong};
use crate::fallible_log::{Body, Mismatch, Publication, SERVES_MS, Stored};

/// The time after which an append or a read without an answer is unknown, in ms.
const STORE_MS: u64 = 500;
/// The time between two renewals of the lease, in ms.
const RENEW_MS: u64 = 1_000;
/// The most appends in flight where the fence is weak.
const IN_FLIGHT_WEAK: usize = 16;
impl HistoryRun<'_> {
    pub(super) fn beat_later(&mut self, node: usize) {
        let ms = 100 + self.below(200);
        let process = self.brokers[node].process();
        self.after(ms, Arrival::Broker(process, News::Beat));
    }

    fn ticket(&mut self) -> u64 {
        self.ticket += 1;
        self.ticket
    }

    pub(super) fn learns(&mut self, node: usize, news: News) {
        // A crash at any step.
        if self.faulty(1) && self.rng_percent(20) {
            return self.crash(node);
        }
        match news {
            News::Beat => self.beat(node),
            News::Call(call, forwarded) => self.called(node, call, forwarded),
            News::Leased(sent_at, revision) => self.leased(node, sent_at, revision),
            News::Renewed(sent_at, revision) => self.renewed(node, sent_at, revision),
            News::Published(ticket, result) => self.published(node, ticket, result),
            News::Tail(ticket, upto) => self.tail_read(node, ticket, upto),
            News::Overdue(ticket) => {
                if self.brokers[node].waits_for(self.brokers[node].life, ticket) {
                    self.overdue(node, ticket);
                }
            }
        }
        self.write(node);
    }

    fn beat(&mut self, node: usize) {
        self.beat_later(node);
        let now = self.now;
        let process = self.brokers[node].process();
        let ignores = self.setting.wrong == Some(Wrong::IgnoresLease);
        let behind = if self.healed { 0 } else { self.below(3) };
        match &mut self.brokers[node].role {
            Role::Follower => {
                let upto = self.stream.last();
                self.brokers[node].read_up_to(&self.stream, upto.saturating_sub(behind));
                if self.setting.saves && self.faulty(30) {
                    self.met.snapshots += 1;
                    self.brokers[node].save();
                }
                if self.rng_percent(40) {
                    self.send(Arrival::AskLease(process, now, None));
                }
            }
            Role::Starting(starting) => {
                if now >= starting.serves_until {
                    self.lapses(node);
                }
            }
            Role::Leading(leading) => {
                if now >= leading.serves_until && !ignores {
                    return self.lapses(node);
                }
                let (epoch, renews) = (leading.epoch, now >= leading.renewed_at + RENEW_MS);
                if renews {
                    leading.renewed_at = now;
                    self.send(Arrival::AskLease(process, now, Some(epoch)));
                }
                self.tick(node);
            }
        }
    }

    /// Gives the leader's core its timers and schedules that are due.
    fn tick(&mut self, node: usize) {
        let now = self.now;
        let broker = &mut self.brokers[node];
        let time = broker.time(now);
        if broker.core.next_deadline().is_some_and(|(at, _)| at <= time) {
            broker.judge(now, Input::Tick, None);
        }
        let due = |known: &&Scheduled| known.next_at <= time;
        let ticks: Vec<ScheduleTick> = (broker.core.state().schedules.values().filter(due))
            .map(|known| ScheduleTick {
                name: known.schedule.name.clone(),
                due: known.next_at,
                next_at: time.plus(HOUR_MS),
                reference: Ref::new(&format!("S-{}", known.next_at.0)).expect("a REF"),
            })
            .collect();
        for tick in ticks {
            broker.judge(now, Input::TickSchedule(Box::new(tick)), None);
        }
    }

    fn lapses(&mut self, node: usize) {
        self.met.lapsed += 1;
        self.note(|| format!("broker {node}: its lease lapsed"));
        self.steps_down(node);
    }

    fn steps_down(&mut self, node: usize) {
        self.met.batches_dropped += self.brokers[node].dropped();
        self.brokers[node].step_down(self.setting);
    }

    /// The broker has the lease, unless the answer took too long to be of use.
    fn leased(&mut self, node: usize, sent_at: u64, revision: u64) {
        let serves_until = sent_at + SERVES_MS;
        let broker = &mut self.brokers[node];
        if !matches!(broker.role, Role::Follower) || self.now >= serves_until {
            return;
        }
        let unfenced = self.setting.wrong == Some(Wrong::EpochsUnfenced);
        let epoch = if unfenced { broker.tail.epoch + 1 } else { revision };
        broker.role = Role::Starting(Starting { epoch, serves_until, ticket: 0, begins: Begins::Reads });
        self.note(|| format!("broker {node}: has the lease, epoch {epoch}"));
        if unfenced {
            self.begins(node, None);
        } else {
            self.asks_tail(node, 0);
        }
    }

    /// A renewal is of use to the leader of its epoch only. Whoever stepped down doesn't lead that epoch again: the
    /// numbers of its batches are used up.
    fn renewed(&mut self, node: usize, sent_at: u64, revision: u64) {
        let unfenced = self.setting.wrong == Some(Wrong::EpochsUnfenced);
        let Some(leading) = self.brokers[node].leading() else { return };
        if revision == leading.epoch || unfenced {
            leading.serves_until = leading.serves_until.max(sent_at + SERVES_MS);
        }
    }

    /// Asks for the tail, to find out what became of the publication with this ticket.
    fn asks_tail(&mut self, node: usize, about: u64) {
        let ticket = self.ticket();
        let broker = &mut self.brokers[node];
        let process = broker.process();
        match &mut broker.role {
            Role::Follower => return,
            Role::Starting(starting) => starting.ticket = ticket,
            Role::Leading(leading) => {
                let mine = leading.flying.iter_mut().find(|flying| flying.ticket == about);
                mine.into_iter().for_each(|flying| flying.ticket = ticket);
            }
        }
        self.send(Arrival::AskTail(process, ticket));
        self.after(STORE_MS, Arrival::Broker(process, News::Overdue(ticket)));
    }

    fn publish(&mut self, node: usize, ticket: u64, publication: Publication) {
        let process = self.brokers[node].process();
        self.send(Arrival::Publish(process, ticket, Box::new(publication)));
        self.after(STORE_MS, Arrival::Broker(process, News::Overdue(ticket)));
    }

    fn publish_again(&mut self, node: usize, ticket: u64, publication: Publication) {
        let anew = self.ticket();
        let Some(leading) = self.brokers[node].leading() else { return };
        let same = leading.flying.iter_mut().find(|flying| flying.ticket == ticket);
        same.into_iter().for_each(|flying| flying.ticket = anew);
        self.publish(node, anew, publication);
    }

    /// Publishes the start of an epoch behind the one before.
    fn begins(&mut self, node: usize, expect_epoch: Option<u64>) {
        let ticket = self.ticket();
        let Role::Starting(starting) = &mut self.brokers[node].role else { return };
        starting.begins = Begins::Publishes;
        starting.ticket = ticket;
        let message = Stored { epoch: starting.epoch, batch: 0, node, body: Body::EpochStart };
        self.publish(node, ticket, Publication { message, expect_last: None, expect_epoch });
    }

    /// The start of the epoch is stored: reads the log up to there and serves.
    fn leads_from(&mut self, node: usize, epoch_at: u64) {
        let now = self.now;
        let broker = &mut self.brokers[node];
        let Role::Starting(starting) = &broker.role else { return };
        let (epoch, serves_until) = (starting.epoch, starting.serves_until);
        if self.setting.wrong != Some(Wrong::SkipsReplay) {
            broker.read_up_to(&self.stream, epoch_at);
        }
        let wall = broker.wall(now);
        let last_fact = Some(broker.core.state().at).filter(|_| broker.core.state().seq > Seq(0));
        let clock = Clock::starting(last_fact, now, wall);
        let (batch, flying) = (Batch::default(), VecDeque::new());
        let last = epoch_at;
        let leading =
            Leading { epoch, epoch_at, last, batches: 0, batch, flying, clock, serves_until, renewed_at: now };
        broker.role = Role::Leading(Box::new(leading));
        self.met.epochs += 1;
        self.note(|| format!("broker {node}: leads epoch {epoch} from {epoch_at}"));
        self.boots(node);
    }

    /// Gives the core its first inputs in this epoch, as the server's boot does.
    fn boots(&mut self, node: usize) {
        let limits = self.limits();
        let now = self.now;
        let broker = &mut self.brokers[node];
        let new = broker.core.state().seq == Seq(0);
        let idle = broker.leading().map_or(0, |leading| leading.clock.idle);
        if idle > 0 {
            let then = broker.time(now).plus(idle);
            broker.judge_at(then, Input::Idled(None, idle), None);
            broker.leading().into_iter().for_each(|leading| leading.clock.jump());
        }
        if new || broker.core.state().limits != limits {
            broker.judge(now, Input::Configure(Box::new(limits)), None);
        }
        if broker.core.state().edition < EDITION {
            broker.judge(now, Input::Upgrade(EDITION), None);
        }
        if new {
            for n in 0..self.clients.actors() {
                let by = self.brokers[node].core.state().prove(&super::clients::credential(1));
                let input = self.clients.registration(n, by);
                self.brokers[node].judge(now, input, None);
            }
        }
    }

    /// Whether a broker leads and its lease is valid.
    fn serves(&self, node: usize) -> bool {
        match &self.brokers[node].role {
            Role::Leading(leading) => {
                self.now < leading.serves_until || self.setting.wrong == Some(Wrong::IgnoresLease)
            }
            Role::Follower | Role::Starting(_) => false,
        }
    }

    fn called(&mut self, node: usize, call: u64, forwarded: bool) {
        let now = self.now;
        // A broker that was stopped between the check of its lease and the judgement goes on with the latter.
        let checked = std::mem::take(&mut self.brokers[node].checked);
        let serves = self.serves(node) || checked && self.brokers[node].leads();
        let broker = &self.brokers[node];
        if serves {
            let Some(input) = self.clients.input(call) else { return };
            self.brokers[node].judge(now, input, Some(call));
        } else if forwarded || broker.leader == node {
            self.met.unserved += 1;
            self.send(Arrival::Answer(call, None));
        } else {
            self.met.forwarded += 1;
            let leader = broker.leader;
            self.send(Arrival::Call(leader, call, true));
        }
    }

    /// Publishes what was judged if nothing is in flight, and releases what needs no append.
    fn write(&mut self, node: usize) {
        let weak = self.setting.is_weak();
        let most = if weak { IN_FLIGHT_WEAK } else { 1 };
        let ticket = self.ticket();
        let Some(leading) = self.brokers[node].leading() else { return };
        if leading.batch.entries.is_empty() {
            leading.batch.held.iter_mut().for_each(|held| held.by_lease = true);
            // A reply that shows facts in flight waits for them.
            if leading.flying.is_empty() {
                let held = std::mem::take(&mut leading.batch.held);
                self.release(node, held);
            } else if let Some(flying) = leading.flying.back_mut() {
                flying.held.append(&mut leading.batch.held);
            }
            return;
        }
        if leading.flying.len() >= most {
            return;
        }
        let batch = std::mem::take(&mut leading.batch);
        leading.batches += 1;
        let body = Body::Commit { first: batch.first.unwrap_or(Seq(0)), entries: batch.entries };
        let message = Stored { epoch: leading.epoch, batch: leading.batches, node, body };
        let expect_last = Some(leading.last);
        // With several in flight the sequence of each can only be predicted.
        leading.last += u64::from(weak);
        let expect_epoch = (!weak).then_some(leading.epoch_at);
        let publication = Publication { message, expect_last, expect_epoch };
        let mut held = batch.held;
        let early = self.setting.wrong == Some(Wrong::ReleasesEarly);
        let released = if early { std::mem::take(&mut held) } else { Vec::new() };
        leading.flying.push_back(Flying { ticket, publication: publication.clone(), held });
        self.publish(node, ticket, publication);
        self.release(node, released);
        let broker = &self.brokers[node];
        let deep = !weak || matches!(&broker.role, Role::Leading(leading) if leading.flying.len() > 2);
        if broker.armed && deep {
            self.stop(node);
        }
    }

    fn published(&mut self, node: usize, ticket: u64, result: Result<u64, Mismatch>) {
        let broker = &mut self.brokers[node];
        if !broker.waits_for(broker.life, ticket) {
            self.met.acknowledged_late += u64::from(result.is_ok());
            return;
        }
        match (&broker.role, result) {
            (Role::Starting(_), Ok(sequence)) => self.begun(node, sequence),
            (Role::Leading(_), Ok(sequence)) => self.acknowledged(node, ticket, sequence),
            // Another message came first: an earlier copy of this one, or another leader's.
            (_, Err(Mismatch)) => self.asks_tail(node, ticket),
            (Role::Follower, Ok(_)) => {}
        }
    }

    fn begun(&mut self, node: usize, epoch_at: u64) {
        if self.setting.wrong == Some(Wrong::SkipsReplay) {
            return self.leads_from(node, epoch_at);
        }
        let Role::Starting(starting) = &mut self.brokers[node].role else { return };
        starting.begins = Begins::Replays(epoch_at);
        self.asks_tail(node, 0);
    }

    /// A commit is in the log: releases the replies that waited for it.
    fn acknowledged(&mut self, node: usize, ticket: u64, sequence: u64) {
        if self.faulty(8) {
            self.met.crashes_before_release += 1;
            return self.crash(node);
        }
        let weak = self.setting.is_weak();
        let broker = &mut self.brokers[node];
        let Some(leading) = broker.leading() else { return };
        let Some(place) = leading.flying.iter().position(|flying| flying.ticket == ticket) else { return };
        let held = leading.flying.remove(place).map(|flying| flying.held).unwrap_or_default();
        if !weak {
            leading.last = sequence;
        }
        // The core has the facts already; only the reader moves on.
        broker.tail.at = broker.tail.at.max(sequence);
        broker.counted.push(sequence);
        self.release(node, held);
    }

    /// No answer came: whether the message was written is unknown until the tail was read.
    fn overdue(&mut self, node: usize, ticket: u64) {
        self.met.ambiguous += 1;
        self.note(|| format!("broker {node}: ticket {ticket} has no answer"));
        let leading = self.brokers[node].leading();
        match (leading, self.setting.wrong) {
            (Some(leading), Some(Wrong::UnknownIsWritten)) => {
                let sequence = leading.last + 1;
                self.acknowledged(node, ticket, sequence);
            }
            (Some(leading), Some(Wrong::UnknownIsRepeated)) => {
                let Some(flying) = leading.flying.front_mut() else { return };
                flying.publication.expect_last = None;
                let publication = flying.publication.clone();
                self.publish_again(node, ticket, publication);
            }
            (_, Some(Wrong::UnknownIsForgotten)) => {}
            _ => self.asks_tail(node, ticket),
        }
    }

    fn tail_read(&mut self, node: usize, ticket: u64, upto: u64) {
        let broker = &self.brokers[node];
        if !broker.waits_for(broker.life, ticket) {
            return;
        }
        let (epoch_at, newest) = self.stream.epoch_as_of(upto);
        match &broker.role {
            Role::Follower => {}
            Role::Starting(starting) => {
                let (epoch, until) = (starting.epoch, starting.serves_until);
                let unfenced = self.setting.wrong == Some(Wrong::EpochsUnfenced);
                if let Begins::Replays(at) = starting.begins {
                    if newest > epoch { self.is_fenced(node) } else { self.leads_from(node, at) }
                } else if let Some(at) = self.stream.find(epoch, 0, upto) {
                    self.begun(node, at);
                } else if newest >= epoch && !unfenced {
                    self.is_fenced(node);
                } else if self.now < until {
                    self.begins(node, (!unfenced).then_some(epoch_at));
                } else {
                    self.lapses(node);
                }
            }
            Role::Leading(leading) => {
                let (epoch, until) = (leading.epoch, leading.serves_until);
                let flying = leading.flying.iter().find(|flying| flying.ticket == ticket);
                let Some(publication) = flying.map(|flying| flying.publication.clone()) else { return };
                if let Some(sequence) = self.stream.find(epoch, publication.message.batch, upto) {
                    self.met.found_in_tail += 1;
                    self.acknowledged(node, ticket, sequence);
                } else if newest > epoch || publication.expect_last != Some(upto) {
                    self.is_fenced(node);
                } else if self.now < until {
                    // The same expectations: of this copy and the first one at most one is stored.
                    self.met.repeated += 1;
                    self.publish_again(node, ticket, publication);
                } else {
                    self.lapses(node);
                }
            }
        }
    }

    /// Says what the brokers wait for, for a history that doesn't come to an end.
    pub(super) fn what_is_in_flight(&self) -> String {
        let roles: Vec<String> = self.brokers.iter().map(|broker| format!("{:?}", broker.role)).collect();
        format!("{roles:?}, {}", self.clients.what_is_asked())
    }

    fn is_fenced(&mut self, node: usize) {
        self.met.fenced += 1;
        self.note(|| format!("broker {node}: a newer epoch began"));
        self.steps_down(node);
    }

    fn release(&mut self, node: usize, held: Vec<HeldReply>) {
        let leads = self.serves(node) || self.setting.wrong == Some(Wrong::ChecksLeaseFirst);
        for HeldReply { call, reply, shows, by_lease } in held {
            if by_lease && !leads {
                self.met.reads_refused += 1;
                self.send(Arrival::Answer(call, None));
                continue;
            }
            let Some((floor, input)) = self.clients.asked(call) else { continue };
            self.note(|| format!("broker {node}: call {call} gets {reply:?}"));
            self.oracle.released(&Released { node, call, shows, floor, reply: &reply, input: &input }, &mut self.met);
            self.send(Arrival::Answer(call, Some(Box::new(reply))));
        }
    }
}
