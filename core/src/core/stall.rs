//! R5: warns of exchanges that make no progress, holds them, and asks a human whether they may go on.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use serde_json::json;

use lastword_facts::fact::{EscalationCause, EscalationOpened, Fact, Level, Lift, Met, Stalled};
use lastword_facts::ids::{AgentId, ConvId, EscalationId, TaskId};
use lastword_facts::refusal::Code;
use lastword_facts::stall::{Curve, HOLD_DRY, SAME_MAX, StallCause};
use lastword_facts::visible;

use super::Step;

/// The characters of a message that the broker's question quotes.
const QUOTED_CHARS: usize = 200;

impl Step<'_> {
    /// Records what is due after the message that was recorded last.
    pub(super) fn check_stall(&mut self) {
        let Some((task, agent)) = self.state().due_in_exchange().filter(|_| self.has_guard("no_progress")) else {
            return;
        };
        let Some(Fact::Accepted { message }) = self.out.entries.last().map(|entry| &entry.fact) else { return };
        let Some(exchange) = self.state().exchange(task, agent) else { return };
        let observes = self.state().limits.observed.observes("no_progress");
        let Some((level, stall)) = exchange.due(!observes) else { return };
        let (conv, curve) = (message.conv, exchange.curve());
        let escalation = if level == Level::Held && !observes {
            let said: String = message.body.chars().take(QUOTED_CHARS).collect();
            Some(self.ask_whether_to_go_on(task, agent, conv, stall, curve, &said))
        } else {
            None
        };
        self.record(Fact::Stalled(Stalled { task, agent, conv, level, stall, enforced: !observes, curve, escalation }));
    }

    /// Asks the human who gave the grant whether a held exchange may go on, and offers the lift.
    fn ask_whether_to_go_on(
        &mut self,
        task: TaskId,
        agent: AgentId,
        conv: ConvId,
        stall: StallCause,
        curve: Curve,
        said: &str,
    ) -> EscalationId {
        let state = self.state();
        let (asker, grant) = (state.tasks[&task].agent, state.tasks[&task].grant);
        let extended = state.grants.get(&grant).map_or(0, |grant| u64::from(grant.extensions));
        let escalation = EscalationId(state.last_escalation() + 1);
        let (from, to) = (state.name_of(asker), state.name_of(agent));
        let Curve { messages, dry, units, read_again, .. } = curve;
        let (limit, current) = match stall {
            StallCause::Dry => (HOLD_DRY / 1_000, dry.div_ceil(1_000)),
            StallCause::Stuck => (SAME_MAX.into(), SAME_MAX.into()),
        };
        let said = visible::escape_json(&json!(said).to_string());
        let repeats = match stall {
            StallCause::Dry => "The last message begins",
            StallCause::Stuck => "The same message came three times in a row",
        };
        let body = alloc::format!(
            "{from} and {to} make no progress: {read_again} tokens read again for {units} new words in {messages} \
             messages. {repeats}: {said}"
        );
        self.record(Fact::EscalationOpened(EscalationOpened {
            escalation,
            task: Some(task),
            agent: asker,
            conv,
            cause: EscalationCause::NoProgress,
            body: body.into(),
            options: Vec::new(),
        }));
        let met = Met { code: Code::NoProgress, limit, current, conv: Some(conv), grant, extended };
        let lifts = Lift::of(Code::NoProgress, 0, 0).into_iter().collect();
        self.record(Fact::EscalationLifts { escalation, met, lifts });
        self.wake(self.state().human_for(Some(task)));
        escalation
    }
}
