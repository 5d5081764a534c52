//! Links by which anybody reads a conversation.
//!
//! A link's secret is a MAC over what the state has of the link and over the token of the human who made it. So it ends with
//! its fact's time, with another fact, with that token, with that human's role, and with the key of the data directory;
//! nothing that is stored or shown leads back to it.

use lastword_broker::checkpoint::{Checkpoint, CheckpointError};
use lastword_broker::identity::{hex, unhex};
use lastword_broker::{Live, off_thread};
use lastword_core::Input;
use lastword_core::state::{LINK_MS_MAX, Link};
use lastword_facts::fact::{Credential, Role};
use lastword_facts::ids::ConvId;
use lastword_facts::{Code, Refusal, Time};
use lastword_store::ReadError;
use lastword_wire::FieldError;

use super::{Caller, Context, admitted};
use crate::error::ApiError;

/// Keeps the MAC of a link from passing as another.
const LABEL: &str = "link";
const MAC_BYTES: usize = 32;

/// The link to a conversation, as the humans of the workspace see it.
pub struct LinkView {
    /// The name of the human who made it.
    pub by: String,
    /// When it expires.
    pub until: Time,
}

/// What a link opens.
pub struct Opened {
    /// The human who made it, for whom the conversation is read.
    pub caller: Caller,
    /// The REF of the conversation.
    pub reference: String,
    /// When the link expires.
    pub until: Time,
}

/// Makes the link to a conversation; the one before ends. Returns its secret, which is shown once, and when it expires.
pub async fn make(ctx: &Context, caller: Caller, conv: ConvId, valid_ms: u64) -> Result<(String, Time), ApiError> {
    if valid_ms == 0 || valid_ms > LINK_MS_MAX {
        return Err(FieldError::new("valid_ms", format!("must be between 1 and {LINK_MS_MAX}")).into());
    }
    let input = Input::SetLink(caller.principal, conv, Some(valid_ms));
    let then = move |reply, live: &Live<'_>| (reply, live.state.links.get(&conv).copied());
    let (reply, link) = ctx.handle.submit_then(input, then).await?;
    admitted(Ok(reply))?;
    let link = link.ok_or_else(|| ApiError::internal("the link was ended at once"))?;
    let (token, _) = ctx.handle.proof_of(link.by).ok_or_else(|| Refusal::new(Code::Unauthenticated))?;
    let mac = ctx.handle.signer().mac_of(LABEL, &signed(conv, link, &token));
    Ok((format!("{}.{}", conv.0, hex(&mac)), link.until))
}

/// Ends the link to a conversation, if it has one.
pub async fn end(ctx: &Context, caller: Caller, conv: ConvId) -> Result<(), ApiError> {
    admitted(ctx.handle.submit(Input::SetLink(caller.principal, conv, None)).await)?;
    Ok(())
}

/// Returns the link to a conversation; `None` if it has none that opens it.
pub async fn of(ctx: &Context, conv: ConvId) -> Result<Option<LinkView>, ApiError> {
    let look = move |live: &Live<'_>| {
        let link = valid(live, conv)?;
        Some(LinkView { by: live.state.name_of(link.by).to_owned(), until: link.until })
    };
    Ok(ctx.handle.query(look).await?)
}

/// Returns what the secret of a link opens.
pub async fn open(ctx: &Context, secret: &str) -> Result<Opened, ApiError> {
    let opened = opened(ctx, secret).await?;
    opened.ok_or_else(|| {
        ctx.handle.metrics().refuse(Code::Unauthenticated);
        let mut fault = ApiError::new(Code::Unauthenticated, "This link has ended, or isn't complete");
        fault.0.title = "Nothing to read here".into();
        fault.0.hint = "Ask who sent it for another one.".into();
        fault
    })
}

async fn opened(ctx: &Context, secret: &str) -> Result<Option<Opened>, ApiError> {
    let parts = secret.split_once('.').and_then(|(conv, mac)| Some((conv.parse().ok()?, unhex::<MAC_BYTES>(mac)?)));
    let Some((conv, mac)) = parts.map(|(conv, mac)| (ConvId(conv), mac)) else { return Ok(None) };
    let look = move |live: &Live<'_>| Some((valid(live, conv)?, live.state.ref_of(conv)?.to_string()));
    let Some((link, reference)) = ctx.handle.query(look).await? else { return Ok(None) };
    let Some((token, _)) = ctx.handle.proof_of(link.by) else { return Ok(None) };
    let proven = ctx.handle.signer().is_mac_of(LABEL, &signed(conv, link, &token), &mac);
    let caller = Caller::standing(&ctx.handle, link.by).filter(|_| proven);
    Ok(caller.map(|caller| Opened { caller, reference, until: link.until }))
}

/// Returns the link to a conversation, if it hasn't expired and its human may still make one.
fn valid(live: &Live<'_>, conv: ConvId) -> Option<Link> {
    let link = live.state.links.get(&conv).copied().filter(|link| live.now() < link.until)?;
    live.state.agent(link.by).filter(|human| human.live && human.role <= Role::Approver).map(|_| link)
}

fn signed(conv: ConvId, Link { made, until, by }: Link, token: &Credential) -> Vec<u8> {
    let numbers = [u64::from(conv.0), made.0, until.0, u64::from(by.0)];
    numbers.iter().flat_map(|number| number.to_le_bytes()).chain(*token).collect()
}

/// Returns the position and hash of the log's end, as `lastword verify --expect` takes them; `None` for an empty log.
pub async fn end_of_log(ctx: &Context) -> Result<Option<String>, ApiError> {
    let signer = ctx.signer.clone();
    let found = off_thread(move || {
        let wrong = |error: CheckpointError| ReadError::Unavailable { reason: error.to_string() };
        signer.sign(None)?.map(|note| Checkpoint::of(&note)).transpose().map_err(wrong)
    });
    Ok(found.await?.map(|Checkpoint { anchor, .. }| format!("{}:{}", anchor.at.0, hex(&anchor.hash))))
}
