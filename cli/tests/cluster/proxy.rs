//! A TCP proxy that can be cut, for partitions between a node and NATS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::nats_server::runtime;
use crate::traffic::now;

/// What passes through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// Both directions.
    All,
    /// Nothing, and connections end.
    Nothing,
    /// Nothing, and neither end notices.
    Silence,
    /// What the client sends, but no answer: neither end notices that the other is cut off.
    RequestsOnly,
}

/// A proxy to one server, for as long as this lives.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    passing: Arc<watch::Sender<Passing>>,
    /// How long what passes is on its way, in each direction.
    delay: Arc<watch::Sender<Duration>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Self {
        let (passing, watching) = watch::channel(Passing::All);
        let (delay, delayed) = watch::channel(Duration::ZERO);
        let listener = runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let task = runtime().spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(pass(client, port, watching.clone(), delayed.clone()));
            }
        });
        Self { address, passing: Arc::new(passing), delay: Arc::new(delay), task }
    }

    pub(crate) fn set(&self, passing: Passing) {
        self.passing.send_replace(passing);
    }

    pub(crate) fn delay(&self, delay: Duration) {
        self.delay.send_replace(delay);
    }

    /// Returns whether no connection goes through it.
    pub(crate) fn is_idle(&self) -> bool {
        // The listener looks, and each connection.
        self.passing.receiver_count() == 1
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Copies until either end closes; what is read is written after a delay.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    delay: &watch::Receiver<Duration>,
) {
    let (sender, mut queue) = mpsc::unbounded_channel();
    let read = async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let due = Instant::from_std(now()) + *delay.borrow();
            if sender.send((due, buffer[..read].to_vec())).is_err() {
                return;
            }
        }
    };
    let write = async {
        while let Some((due, bytes)) = queue.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _closed = to.shutdown().await;
    };
    tokio::join!(read, write);
}

/// Copies while this passes, and holds up what comes else.
async fn while_passing(
    mut passing: watch::Receiver<Passing>,
    passes: impl Fn(Passing) -> bool,
    copying: impl Future<Output = ()>,
) {
    let (mut copying, mut watching) = (std::pin::pin!(copying), passing.clone());
    while passing.wait_for(|it| passes(*it)).await.is_ok() {
        tokio::select! {
            () = &mut copying => return,
            _ = watching.wait_for(|it| !passes(*it)) => {}
        }
    }
}

async fn pass(client: TcpStream, port: u16, mut passing: watch::Receiver<Passing>, delay: watch::Receiver<Duration>) {
    if *passing.borrow() == Passing::Nothing {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up =
        while_passing(passing.clone(), |it| it != Passing::Silence, copy(&mut from_client, &mut to_server, &delay));
    let down = while_passing(passing.clone(), |it| it == Passing::All, copy(&mut from_server, &mut to_client, &delay));
    tokio::select! {
        () = up => {}
        () = down => {}
        _ = passing.wait_for(|passing| *passing == Passing::Nothing) => {}
    }
}
