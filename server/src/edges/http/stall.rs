//! A connection that ends if its peer stops reading.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Sleep, sleep};

/// The time in which a peer that lets data wait has to take it, or at least `WRITE_BYTES_MIN` of it.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);
/// A peer that takes a byte at a time doesn't renew the time limit.
const WRITE_BYTES_MIN: usize = 16 << 10;

/// An I/O object whose writes have a time limit. It fails with [`io::ErrorKind::TimedOut`].
#[derive(Debug)]
pub(super) struct WriteTimeout<T> {
    io: T,
    /// The end of the time in which the peer has to read; `None` while nothing waits for it.
    stalled: Option<Pin<Box<Sleep>>>,
    /// The bytes that the peer took in that time.
    taken: usize,
}

impl<T> WriteTimeout<T> {
    pub(super) const fn new(io: T) -> Self {
        Self { io, stalled: None, taken: 0 }
    }

    fn reset(&mut self) {
        self.stalled = None;
        self.taken = 0;
    }

    fn watch(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            self.taken += written.as_ref().map_or(0, |bytes| *bytes);
            if self.taken >= WRITE_BYTES_MIN {
                self.reset();
            }
            return Poll::Ready(written);
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(WRITE_TIME_MAX)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: Read + Unpin> Read for WriteTimeout<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: Write + Unpin> Write for WriteTimeout<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, parts);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Hyper flushes once all that it had to write is written.
        self.reset();
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper_util::rt::TokioIo;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn write(io: &mut WriteTimeout<TokioIo<tokio::io::DuplexStream>>, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| Pin::new(&mut *io).poll_write(cx, bytes)).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_stops_reading_or_reads_byte_by_byte_is_given_up() {
        for reads in [false, true] {
            let (near, mut far) = tokio::io::duplex(1_024);
            let mut io = WriteTimeout::new(TokioIo::new(near));
            let mut reader = tokio::task::JoinSet::new();
            reader.spawn(async move {
                while reads && far.read_u8().await.is_ok() {
                    sleep(Duration::from_secs(1)).await;
                }
                std::future::pending::<()>().await;
            });
            let begun = tokio::time::Instant::now();
            let error = loop {
                if let Err(error) = write(&mut io, &[0; 512]).await {
                    break error;
                }
            };
            assert_eq!((error.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, 30), "reads: {reads}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_that_takes_enough_is_waited_for() {
        let (near, mut far) = tokio::io::duplex(16 << 10);
        let mut io = WriteTimeout::new(TokioIo::new(near));
        let mut reader = tokio::task::JoinSet::new();
        reader.spawn(async move {
            let mut buffer = vec![0; 16 << 10];
            for _ in 0..8 {
                sleep(Duration::from_secs(20)).await;
                far.read_exact(&mut buffer).await.unwrap();
            }
        });
        let mut left = 8 * (16 << 10);
        while left > 0 {
            left -= write(&mut io, &vec![0; left.min(4_096)]).await.unwrap();
        }
        reader.join_next().await.unwrap().unwrap();
    }
}
