//! Checkpoints of the log, for a human or a cosigner to keep elsewhere (L5).

use std::sync::Arc;

use lastword_broker::checkpoint::Note;
use lastword_broker::off_thread;
use lastword_facts::Seq;

use super::{Caller, Context, epochs};
use crate::error::ApiError;

/// Signs the chain's hash at `at`, or at the log's present end. Only a human may ask.
pub(crate) async fn sign(ctx: &Context, caller: Caller, at: Option<u64>) -> Result<Note, ApiError> {
    caller.human()?;
    if let Some(at) = at {
        epochs::check_position(ctx, Seq(at)).await?;
    }
    let signer = Arc::clone(&ctx.signer);
    let signed = off_thread(move || signer.sign(at.map(Seq))).await?;
    let place = at.map_or_else(|| "the end of an empty log".to_owned(), |at| format!("a hash at position {at}"));
    signed.ok_or_else(|| ApiError::unknown(&place))
}
