//! The epoch that a restore begins, and what is refused because it was issued in an abandoned one (L8).

use alloc::string::{String, ToString};

use lastword_facts::envelope::MessageType;
use lastword_facts::fact::Fact;
use lastword_facts::ids::{Seq, TurnId};
use lastword_facts::names::RequestId;
use lastword_facts::refusal::{Code, Refusal};

use super::{Outcome, Step};
use crate::input::{Input, Reply};
use crate::state::{Number as _, Numbered, RequestNumber};

impl Step<'_> {
    pub(super) fn begin_epoch(&mut self, first: Seq) -> Outcome {
        if first.0 <= self.state().last_number() {
            return Err(Refusal::new(Code::Malformed).about("the epoch would begin before the end of the log"));
        }
        self.record(Fact::EpochBegan { first });
        Ok(Reply::Done)
    }

    /// Refuses an input that names something issued after the position to which a restore went back.
    pub(super) fn check_epoch(&self, input: &Input) -> Result<(), Refusal> {
        let epochs = &self.state().epochs;
        if epochs.current() == 1 {
            return Ok(());
        }
        let over = |kind, number: u64, id: &dyn ToString| epochs.is_over(kind, number).then(|| id.to_string());
        let turn = |turn: &TurnId| over(Numbered::Turn, turn.0, turn);
        let request = |id: &RequestId| -> Option<String> {
            RequestNumber::of(id.as_str()).and_then(|number| over(Numbered::Request, number.value(), id))
        };
        #[expect(clippy::wildcard_enum_match_arm, reason = "every other input names nothing that a restore abandons")]
        let (by, found) = match input {
            Input::Send(by, draft) => {
                let named = [draft.in_reply_to, draft.caused_by].into_iter().flatten();
                let mut named = named.filter_map(|seq| over(Numbered::Position, seq.0, &seq));
                // A REQUEST brings its own id.
                let answered = draft.request_id.as_ref().filter(|_| draft.kind != MessageType::Request);
                (by, draft.turn.as_ref().and_then(turn).or_else(|| answered.and_then(request)).or_else(|| named.next()))
            }
            Input::Take(by, Some(id))
            | Input::Progress(by, Some(id), _)
            | Input::Escalate(by, Some(id), _)
            | Input::AskApproval(by, Some(id), _)
            | Input::Claim(by, Some(id), _) => (by, turn(id)),
            Input::Finish(by, id, finish) => {
                (by, id.as_ref().and_then(turn).or_else(|| finish.request.as_ref().and_then(request)))
            }
            Input::Collect(by, id) | Input::Cancel(by, id) | Input::Dismiss(by, id) => (by, request(id)),
            Input::Answer(by, id, ..) | Input::ChooseLift(by, id, ..) => (by, over(Numbered::Escalation, id.0, id)),
            Input::Decide(by, id, _) | Input::Use(by, id, ..) => (by, over(Numbered::Approval, id.0, id)),
            Input::Release(by, id) => (by, over(Numbered::Claim, id.0, id)),
            _ => return Ok(()),
        };
        match found {
            Some(id) => {
                self.authenticate(*by)?;
                Err(Refusal::new(Code::EpochOver).about(id))
            }
            None => Ok(()),
        }
    }
}
