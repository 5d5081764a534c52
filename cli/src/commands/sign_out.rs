//! `lastword sign-out`: ends a sign-in, at the broker and on this machine.

use std::fs;

use lastword_client::{Client, Token};
use lastword_facts::Code;
use serde_json::json;

use super::Context;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(Args {}: Args, cx: &Context) -> Result<(), Failure> {
    let endpoint = cx.endpoint()?;
    let file = cx.sign_in_file(endpoint.url()).filter(|file| file.exists());
    let file = file.ok_or_else(|| Failure::refused(format!("nobody is signed in at {}", endpoint.url())))?;
    let token = fs::read_to_string(&file)?;
    let ended = Client::new(&endpoint, Some(Token::new(token.trim())?))?.end_token().await;
    // An expired token is of no use either. Any other failure keeps the file, so that the command can be repeated.
    let over =
        ended.as_ref().is_err_and(|error| error.problem().is_some_and(|problem| problem.code == Code::Unauthenticated));
    if !over {
        ended?;
    }
    fs::remove_file(&file)?;
    cx.out.show(&json!({ "signed_out": endpoint.url() }), |_, _| format!("signed out at {}", endpoint.url()))
}
