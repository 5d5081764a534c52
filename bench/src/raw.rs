//! A session over a plain connection, whose owner decides when a byte is read.

use std::io::ErrorKind;

use lastword_client::wire::session::{PATH, SUBPROTOCOL};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::failure::Failure;

/// The buffer that the system keeps for what isn't read yet: small, so that the server soon has to wait.
const RECEIVE_BYTES: u32 = 8 << 10;

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
/// The bit of a frame that ends a message, and the bit of a masked one.
const LAST: u8 = 0x80;
const MASKED: u8 = 0x80;

/// Begins a session on a new connection.
pub(crate) async fn begin(stream: &mut TcpStream, host: &str, token: &str) -> Result<(), Failure> {
    let head = format!(
        "GET {PATH} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n\
         Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await?);
    }
    answer
        .starts_with(b"HTTP/1.1 101 ")
        .then_some(())
        .ok_or_else(|| Failure::bug(format!("no session: {}", String::from_utf8_lossy(&answer))))
}

/// Writes a text as one frame.
pub(crate) async fn write(stream: &mut TcpStream, text: &str) -> Result<(), Failure> {
    Ok(stream.write_all(&frame(TEXT, text.as_bytes())).await?)
}

/// Returns a frame, masked with zeros.
fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![LAST | kind];
    match u16::try_from(bytes.len()) {
        Ok(short @ 0..126) => frame.push(MASKED | short.to_be_bytes()[1]),
        Ok(length) => {
            frame.push(MASKED | 126);
            frame.extend(length.to_be_bytes());
        }
        Err(_) => {
            frame.push(MASKED | 127);
            frame.extend((bytes.len() as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(bytes);
    frame
}

/// An open session.
pub(crate) struct Raw {
    stream: TcpStream,
    /// The bytes read so far. Those from `start` on are unread frames; the last one may be incomplete.
    held: Vec<u8>,
    start: usize,
}

impl Raw {
    pub(crate) async fn open(addr: &str, token: &str) -> Result<Self, Failure> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(RECEIVE_BYTES)?;
        let mut stream = socket.connect(addr.parse().map_err(Failure::bug)?).await?;
        begin(&mut stream, addr, token).await?;
        Ok(Self { stream, held: Vec::new(), start: 0 })
    }

    pub(crate) async fn write(&mut self, text: &str) -> Result<(), Failure> {
        write(&mut self.stream, text).await
    }

    /// Waits until there is something to read.
    pub(crate) async fn arrived(&self) -> Result<(), Failure> {
        Ok(self.stream.readable().await?)
    }

    /// Reads what has arrived, at most so many bytes.
    pub(crate) fn read(&mut self, most: usize) -> Result<(), Failure> {
        self.held.drain(..std::mem::take(&mut self.start));
        let before = self.held.len();
        self.held.resize(before + most, 0);
        let read = self.stream.try_read(&mut self.held[before..]);
        self.held.truncate(before + read.as_ref().copied().unwrap_or_default());
        match read {
            Ok(0) => Err(Failure::unavailable("the server hung up on a session")),
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns the text of the next frame that has arrived as a whole. Answers the pings before it.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, Failure> {
        while let Some((kind, body)) = self.taken() {
            match kind {
                TEXT => return String::from_utf8(body).map(Some).map_err(Failure::bug),
                PING => self.stream.write_all(&frame(PONG, &body)).await?,
                CLOSE => {
                    let reason = String::from_utf8_lossy(body.get(2..).unwrap_or_default()).into_owned();
                    return Err(Failure::unavailable(format!("the server ended a session: {reason}")));
                }
                other => return Err(Failure::bug(format!("a frame of the kind {other}"))),
            }
        }
        Ok(None)
    }

    fn taken(&mut self) -> Option<(u8, Vec<u8>)> {
        let held = &self.held[self.start..];
        let (&kind, rest) = held.split_first()?;
        let (&short, rest) = rest.split_first()?;
        let (length, rest) = match short {
            126 => rest.split_first_chunk().map(|(length, rest)| (u64::from(u16::from_be_bytes(*length)), rest))?,
            127 => rest.split_first_chunk().map(|(length, rest)| (u64::from_be_bytes(*length), rest))?,
            short => (u64::from(short), rest),
        };
        let body = rest.get(..usize::try_from(length).ok()?)?.to_vec();
        self.start = self.held.len() - (rest.len() - body.len());
        Some((kind & !LAST, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_of_every_length_come_whole_however_they_are_cut() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let mut raw = Raw { stream, held: Vec::new(), start: 0 };
        let texts = [1, 125, 126, 70_000].map(|length| "é".repeat(length)[..length / 2 * 2].to_owned());
        for text in &texts {
            // As a server sends it: without a mask.
            let mut sent = frame(TEXT, text.as_bytes());
            sent[1] &= !MASKED;
            let head = sent.len() - text.len();
            sent.drain(head - 4..head);
            server.write_all(&sent).await.unwrap();
            let come = loop {
                if let Some(come) = raw.next().await.unwrap() {
                    break come;
                }
                raw.arrived().await.unwrap();
                raw.read(1_000).unwrap();
            };
            assert_eq!(&come, text);
        }
    }
}
