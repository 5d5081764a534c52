//! The errors of calls, as every edge reports them: a [`Problem`].

use lastword_broker::Unserved;
use lastword_facts::header::HeaderError;
use lastword_facts::{Code, Refusal, Seq};
use lastword_store::ReadError;
use lastword_wire::{FieldError, LiftStep, Problem};

/// The prefix of a recorded refusal's id; its position in the log follows.
const RECORD_PREFIX: &str = "refused-";

/// Returns the id of the refusal recorded at this position.
pub(crate) fn record_id(seq: Seq) -> String {
    format!("{RECORD_PREFIX}{}", seq.0)
}

/// Parses the position from the id of a recorded refusal.
#[must_use]
pub fn record_of(id: &str) -> Option<Seq> {
    let digits = id.strip_prefix(RECORD_PREFIX).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok().map(Seq)
}

/// A call that was not done, with the problem to report.
#[derive(Clone, Debug)]
pub struct ApiError(pub Box<Problem>);

impl ApiError {
    /// A refusal whose detail names the wrong member, parameter or name.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::detailed(&Refusal::new(code), detail.into())))
    }

    /// A thing that doesn't exist, or that the caller may not see: both look the same, so that callers can't probe for
    /// names.
    #[must_use]
    pub fn unknown(what: &str) -> Self {
        Self::new(Code::UnknownRequest, format!("{what:?} not found"))
    }

    /// A call that only a human may make.
    #[must_use]
    pub(crate) fn humans_only() -> Self {
        Self::new(Code::Forbidden, "Only a human of the workspace may do that")
    }

    /// A reply of a kind that the call doesn't have, which is a bug in the server.
    #[must_use]
    pub(crate) fn unexpected(reply: &lastword_core::Reply) -> Self {
        tracing::error!(?reply, "a reply that this call doesn't have");
        Self::internal("an internal error: the reply was of the wrong kind")
    }

    /// Says what to do instead, where the hint of the code is about another fault.
    #[must_use]
    pub fn hinted(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = hint.into();
        self
    }

    /// Adds the id of the refusal's record in the log.
    #[must_use]
    pub(crate) fn recorded(mut self, record: Option<Seq>) -> Self {
        self.0.record = record.map(record_id);
        self
    }

    /// Adds the step by which a human lifts the refusal (H6).
    #[must_use]
    pub(crate) fn lifted(mut self, lift: Option<LiftStep>) -> Self {
        self.0.lift = lift;
        self
    }

    /// A failure of the server, reported with status 500.
    #[must_use]
    pub fn internal(detail: &str) -> Self {
        let mut problem = Problem::detailed(&Refusal::new(Code::Saturated), detail.to_owned());
        problem.status = 500;
        problem.hint = "Retry with the same Idempotency-Key; a human finds the cause in the log of the server.".into();
        Self(Box::new(problem))
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self(Box::new(Problem::new(&refusal)))
    }
}

impl From<Unserved> for ApiError {
    fn from(unserved: Unserved) -> Self {
        Self(Box::new(Problem::detailed(&unserved.refusal(), unserved.to_string())))
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        tracing::error!(%error, "the log can't be read");
        Self::internal(&error.to_string())
    }
}

impl ApiError {
    /// Returns the error of a member that is well-formed but would do nothing, or contradicts another one: status 422.
    pub(crate) fn pointless(error: &FieldError) -> Self {
        let mut fault = Self::new(Code::Malformed, error.to_string());
        fault.0.status = 422;
        fault
    }
}

impl From<FieldError> for ApiError {
    fn from(error: FieldError) -> Self {
        Self::new(Code::Malformed, error.to_string())
    }
}

impl From<HeaderError> for ApiError {
    fn from(error: HeaderError) -> Self {
        Self::new(Code::MalformedHeader, error.to_string())
    }
}
