//! The WebSocket of a session, with a bound on what an unfinished message may hold.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{Sink, Stream};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::tracker::Tracker;
use crate::edges::http::REQUEST_BYTES_MAX;
use crate::edges::http::connections::{BodyPermit, Peer};

/// The longest frame: a body as HTTP takes it, and the rest of the call.
pub(super) const FRAME_BYTES_MAX: usize = REQUEST_BYTES_MAX + (16 << 10);
/// The longest frame of a session that hasn't authenticated: a token and little more.
const UNPROVEN_BYTES_MAX: u64 = 4 << 10;
/// The buffer for what arrives. Ten thousand sessions have one each.
const READ_BYTES: usize = 2 << 10;
/// What may wait to be written before it is written.
const WRITE_BYTES: usize = 16 << 10;
/// The pause before the session looks again whether a long message may arrive.
const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// The WebSocket of a session.
pub(super) struct Socket(WebSocketStream<Metered>);

impl Socket {
    pub(super) async fn open(upgraded: Upgraded) -> Self {
        let mut config = WebSocketConfig::default().read_buffer_size(READ_BYTES).write_buffer_size(WRITE_BYTES);
        config = config.max_message_size(Some(FRAME_BYTES_MAX)).max_frame_size(Some(FRAME_BYTES_MAX));
        let io = Metered {
            io: TokioIo::new(upgraded),
            tracker: Tracker::default(),
            since: None,
            peer: None,
            permit: None,
            room: None,
        };
        Self(WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await)
    }

    /// Allows long messages: the session has authenticated.
    pub(super) fn prove(&mut self, peer: &Peer) {
        self.0.get_mut().peer = Some(peer.clone());
    }

    /// Returns whether a message has been arriving for longer than `most`.
    pub(super) fn slow(&self, most: Duration) -> bool {
        self.0.get_ref().since.is_some_and(|since| since.elapsed() > most)
    }

    pub(super) async fn close(&mut self, frame: Option<CloseFrame>) -> Result<(), Error> {
        self.0.close(frame).await
    }
}

impl Stream for Socket {
    type Item = Result<Message, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(cx)
    }
}

impl Sink<Message> for Socket {
    type Error = Error;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.0).poll_ready(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        Pin::new(&mut self.0).start_send(message)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}

/// The connection below, which reads no more of a message than there is room for.
struct Metered {
    io: TokioIo<Upgraded>,
    tracker: Tracker,
    /// When the unfinished message began.
    since: Option<Instant>,
    /// The connection, once the session has authenticated.
    peer: Option<Peer>,
    /// The room for the unfinished message, if it is a long one.
    permit: Option<BodyPermit>,
    room: Option<Pin<Box<Sleep>>>,
}

impl Metered {
    /// Waits until there is room for the rest of the message that is arriving.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let bytes = self.tracker.message_bytes();
        let Some(peer) = &self.peer else {
            let fits = bytes <= UNPROVEN_BYTES_MAX;
            return Poll::Ready(if fits { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) });
        };
        // One that is too long is refused by its header.
        if self.permit.is_some() || bytes > FRAME_BYTES_MAX as u64 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if let Some(room) = &mut self.room {
                ready!(room.as_mut().poll(cx));
            }
            let length = usize::try_from(bytes).unwrap_or(usize::MAX);
            // As for a fragmented body of HTTP, the lengths of later fragments aren't known.
            let reserve = if Peer::is_long(length) { REQUEST_BYTES_MAX } else { 0 };
            match peer.body(reserve) {
                Ok(permit) => {
                    self.room = None;
                    self.permit = (reserve > 0).then_some(permit);
                    return Poll::Ready(Ok(()));
                }
                // Its other connections are reading such messages, or other agents are.
                Err(_) => self.room = Some(Box::pin(sleep(ROOM_PAUSE))),
            }
        }
    }
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_room(cx))?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let this = &mut *self;
        let ended = this.tracker.follow(&buffer.filled()[before..]);
        if ended || !this.tracker.is_within() {
            (this.since, this.permit) = (None, None);
        }
        if this.tracker.is_within() {
            this.since.get_or_insert_with(Instant::now);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
