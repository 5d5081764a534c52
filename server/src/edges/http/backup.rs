//! `POST /v1/backup`: a consistent copy of the log as a stream, for an owner.

use std::io::{self, Write};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use lastword_facts::fact::Role;
use tokio::sync::mpsc::{Sender, channel};

use crate::backup::back_up;
use crate::calls::{Caller, Context, humans};
use crate::error::ApiError;

/// The most parts between the log's reader and the connection. A slow client slows the reader down.
const PARTS_MAX: usize = 4;
/// Bytes of a part.
const PART_BYTES: usize = 64 << 10;

pub(super) async fn make(State(ctx): State<Context>, caller: Caller) -> Result<Response, ApiError> {
    humans::require(&ctx, caller, Role::Owner).await?;
    let (parts, received) = channel(PARTS_MAX);
    let dir = ctx.files.dir().to_owned();
    // Detached: it ends with the backup, or with the first part that the connection doesn't take.
    tokio::task::spawn_blocking(move || {
        let mut pipe = io::BufWriter::with_capacity(PART_BYTES, Pipe(parts.clone()));
        let copied = back_up(&dir, &mut pipe, &mut |_, _| {}).map(|_| ());
        let done = copied.map_err(io::Error::other).and_then(|()| pipe.flush());
        if let Err(error) = done {
            tracing::warn!(%error, "a backup was not completed");
            // An error in the stream cuts the response, so that no client takes it for whole.
            let _gone = parts.blocking_send(Err(error));
        }
    });
    let body = stream::unfold(received, |mut received| async move { Some((received.recv().await?, received)) });
    let kind = (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(([kind], Body::from_stream(body)).into_response())
}

/// Writes into the body of a response.
struct Pipe(Sender<io::Result<Bytes>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
