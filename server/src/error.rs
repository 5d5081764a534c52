//! Why a call was not done, as every edge words it: a [`Problem`].

use lastword_proto::header::HeaderError;
use lastword_proto::wire::{FieldError, LiftStep, Problem};
use lastword_proto::{Code, Refusal, Seq};
use lastword_store::ReadError;

use crate::broker::Unserved;

/// What the id of a recorded refusal starts with; its position in the log follows.
const RECORD_PREFIX: &str = "refused-";

/// The id of the record at this position.
pub(crate) fn record_id(seq: Seq) -> String {
    format!("{RECORD_PREFIX}{}", seq.0)
}

/// The position that the id of a record names.
pub(crate) fn record_of(id: &str) -> Option<Seq> {
    let digits = id.strip_prefix(RECORD_PREFIX).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok().map(Seq)
}

/// A call that was not done.
#[derive(Clone, Debug)]
pub(crate) struct ApiError(pub(crate) Box<Problem>);

impl ApiError {
    /// A refusal with a detail that names the member, parameter or name that is wrong.
    #[must_use]
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::detailed(&Refusal::new(code), detail.into())))
    }

    /// There is no such thing; said of what one may not see as well, so that nothing can be probed.
    #[must_use]
    pub(crate) fn unknown(what: &str) -> Self {
        Self::new(Code::UnknownRequest, format!("{what:?} not found"))
    }

    /// A call that only a human may make.
    #[must_use]
    pub(crate) fn humans_only() -> Self {
        Self::new(Code::Forbidden, "Only a human of the workspace may do that")
    }

    /// The broker gave a reply of another kind than the call has; a bug of ours.
    #[must_use]
    pub(crate) fn unexpected(reply: &lastword_proto::Reply) -> Self {
        tracing::error!(?reply, "a reply that this call doesn't have");
        Self::internal("an internal error: the reply was of the wrong kind")
    }

    /// The same, with where the log has it.
    #[must_use]
    pub(crate) fn recorded(mut self, record: Option<Seq>) -> Self {
        self.0.record = record.map(record_id);
        self
    }

    /// The same, with the step by which a human lifts it (H6).
    #[must_use]
    pub(crate) fn lifted(mut self, lift: Option<LiftStep>) -> Self {
        self.0.lift = lift;
        self
    }

    /// Something of ours failed.
    #[must_use]
    pub(crate) fn internal(detail: &str) -> Self {
        let mut problem = Problem::detailed(&Refusal::new(Code::Saturated), detail.to_owned());
        problem.status = 500;
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
