//! Which trace the work of a grant belongs to, and the ids of its spans.
//!
//! A grant belongs to the trace that its first message names, or has one of its own. An id is computed, not stored: from
//! the number of what it names, under a MAC of the workspace.

use lastword_broker::identity::{TurnSigner, hex};
use lastword_core::input::OpenTurn;
use lastword_facts::TraceContext;
use lastword_facts::ids::GrantId;

/// What a span shows. Its start has a position or number that only it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A message, by its position.
    Send = 1,
    /// A turn, by its number.
    Process = 2,
    /// What happens in a turn or grant, by the position of the fact that begins it.
    Within = 3,
}

/// How grants are traced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traces {
    /// The share of grants without a trace from elsewhere that are recorded, from 0 to 1; `None` if spans aren't exported.
    pub share: Option<f64>,
    /// The address of a trace, with [`TRACE_PLACE`] for its id.
    pub address: Option<String>,
}

/// What stands for the id of a trace in an address.
pub const TRACE_PLACE: &str = "{trace}";

const TRACE: &str = "trace of a grant";
const SPAN: &str = "span";

/// Returns the id of a grant's own trace: its number, and a MAC of that.
#[must_use]
pub fn trace_of(signer: &TurnSigner, grant: GrantId) -> [u8; 16] {
    let (number, mut id) = (grant.0.to_be_bytes(), [0; 16]);
    id[..8].copy_from_slice(&number);
    id[8..].copy_from_slice(&signer.mac_of(TRACE, &number)[..8]);
    id
}

/// Returns the grant of this workspace whose own trace this is.
#[must_use]
pub fn grant_of(signer: &TurnSigner, trace: [u8; 16]) -> Option<GrantId> {
    let number = trace.first_chunk::<8>()?;
    signer.is_mac_of(TRACE, number, &trace[8..]).then_some(GrantId(u64::from_be_bytes(*number)))
}

/// Returns the id of a span. Two workspaces in one trace have different ones.
#[must_use]
pub fn span_of(signer: &TurnSigner, kind: SpanKind, number: u64) -> [u8; 8] {
    let mut named = [kind as u8; 9];
    named[1..].copy_from_slice(&number.to_be_bytes());
    let mac = signer.mac_of(SPAN, &named);
    let mut id = [0; 8];
    id.copy_from_slice(&mac[..8]);
    id
}

impl Traces {
    /// Returns whether the own trace of a grant is recorded.
    fn takes(&self, trace: [u8; 16]) -> bool {
        let tail = trace.last_chunk::<8>().map_or(0, |tail| u64::from_be_bytes(*tail));
        #[expect(clippy::cast_precision_loss, reason = "53 bits are as many as the share has")]
        let place = (tail >> 11) as f64 / (1_u64 << 53) as f64;
        self.share.is_some_and(|share| place < share)
    }

    /// Returns the trace of a grant, and whether it is recorded.
    #[must_use]
    pub fn of_grant(&self, signer: &TurnSigner, grant: GrantId, foreign: Option<TraceContext>) -> ([u8; 16], bool) {
        let own = || {
            let trace = trace_of(signer, grant);
            (trace, self.takes(trace))
        };
        foreign.map_or_else(own, |context| (context.trace, context.sampled))
    }

    /// Returns the id of the trace that a grant is recorded in, if it is, and its address.
    pub(crate) fn shown(
        &self,
        signer: &TurnSigner,
        grant: GrantId,
        foreign: Option<TraceContext>,
    ) -> Option<(String, Option<String>)> {
        let (trace, sampled) = self.of_grant(signer, grant, foreign);
        let id = hex(&trace);
        let address = self.address.as_ref().map(|address| address.replace(TRACE_PLACE, &id));
        sampled.then_some((id, address))
    }

    /// Returns the context of the work in a turn: its span, or without an export the trace from elsewhere, unchanged.
    pub(crate) fn of_turn(&self, signer: &TurnSigner, turn: &OpenTurn) -> Option<TraceContext> {
        if self.share.is_none() {
            return turn.trace;
        }
        let (trace, sampled) = self.of_grant(signer, turn.grant, turn.trace);
        Some(TraceContext { trace, parent: span_of(signer, SpanKind::Process, turn.turn.0), sampled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grants_trace_names_it_to_its_workspace_alone() {
        let (ours, theirs) = (TurnSigner::ephemeral().unwrap(), TurnSigner::ephemeral().unwrap());
        let trace = trace_of(&ours, GrantId(41));
        assert_eq!((grant_of(&ours, trace), grant_of(&theirs, trace)), (Some(GrantId(41)), None));
        let spans = [SpanKind::Send, SpanKind::Process, SpanKind::Within].map(|kind| span_of(&ours, kind, 41));
        assert!(spans[0] != spans[1] && spans[1] != spans[2] && spans[0] != span_of(&theirs, SpanKind::Send, 41));
    }

    #[test]
    fn a_share_of_the_grants_is_recorded() {
        let signer = TurnSigner::ephemeral().unwrap();
        let taken = |share| {
            (0..10_000)
                .filter(|grant| Traces { share: Some(share), address: None }.takes(trace_of(&signer, GrantId(*grant))))
                .count()
        };
        assert_eq!((taken(0.0), taken(1.0)), (0, 10_000));
        assert!((2_000..3_000).contains(&taken(0.25)), "{}", taken(0.25));
    }

    #[test]
    fn a_trace_from_elsewhere_goes_on_and_keeps_its_flag() {
        let signer = TurnSigner::ephemeral().unwrap();
        let foreign = TraceContext { trace: [1; 16], parent: [2; 8], sampled: false };
        let traces = Traces { share: Some(1.0), address: Some("https://x/{trace}?a".to_owned()) };
        assert_eq!(traces.of_grant(&signer, GrantId(1), Some(foreign)), ([1; 16], false));
        assert_eq!(traces.shown(&signer, GrantId(1), Some(foreign)), None);
        assert!(traces.of_grant(&signer, GrantId(1), None).1);
        let foreign = TraceContext { sampled: true, ..foreign };
        let (id, address) = Traces { share: None, ..traces }.shown(&signer, GrantId(1), Some(foreign)).unzip();
        assert_eq!((id, address.flatten()), (Some("01".repeat(16)), Some(format!("https://x/{}?a", "01".repeat(16)))));
    }
}
